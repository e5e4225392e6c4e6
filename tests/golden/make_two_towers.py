"""Makes clip.npz, siglip.npz and siglip2.npz: what small random models of transformers give.

It needs torch, transformers 5, sentencepiece and Pillow, and nothing of this project:

    python tests/golden/make_two_towers.py

`file_` keys are the bytes of the files of a published model, but for the weights, which are
`param_`.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from PIL import Image
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTokenizer,
    Siglip2Tokenizer,
    SiglipConfig,
    SiglipModel,
    SiglipTokenizer,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

HERE = Path(__file__).parent
SIZE, LENGTH = 32, 24
TEXTS = [
    "Two dogs.",
    "no",
    "A red circle, left of a dog!",
    "it's 2019:  two  dogs - don't   run",
    "CAFÉ – naïve Привет 犬 🦓",
    '[two] (dogs) & a_cat @ 10%; "yes"\tno',
    "the red red red red red red red red red red red red red red red red red red red dog",
]
WORDS = "a red green blue round square circle two dogs dog run the left of cat yes no small"


def photo(seed: int, size: tuple[int, int]) -> bytes:
    """A smooth picture as a JPEG."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (7, 9, 3), np.uint8))
    buffer = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def shake(model: torch.nn.Module) -> None:
    """Weights by which different items become different embeddings."""
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if value.ndim > 1 and "embedding" not in name and "probe" not in name:
            value.data = noise * 1.5 / value[0].numel() ** 0.5
        elif "norm" in name and name.endswith("weight"):
            value.data = 1 + 0.2 * noise
        elif "logit" not in name:
            value.data = 0.5 * noise
    model.logit_scale.data.fill_(2.3)
    if hasattr(model, "logit_bias"):
        model.logit_bias.data.fill_(-3.7)


def pieces(**options: object) -> bytes:
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([WORDS, *(text.lower() for text in TEXTS[:2])]),
        model_writer=buffer,
        pad_id=0,
        eos_id=1,
        minloglevel=2,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        **options,
    )
    return buffer.getvalue()


def merges_of(vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The merges of byte-pair encoding that make pieces of others, in the order of their ids."""
    found = []
    for piece in sorted(vocabulary, key=lambda piece: vocabulary[piece]):
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [pair for pair in pairs if all(part in vocabulary for part in pair)]
        found += sorted(pairs, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return found


def clip() -> tuple:
    letters = sorted(ByteLevel.alphabet())
    merges = [("r", "e"), ("re", "d</w>"), ("d", "o"), ("do", "g</w>"), ("o", "f</w>")]
    tokens = [*letters, *(f"{c}</w>" for c in letters), *("".join(pair) for pair in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer({token: i for i, token in enumerate(tokens)}, merges)
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    text = tower | {"hidden_size": 8, "vocab_size": len(tokens), "eos_token_id": len(tokens) - 1}
    text |= {"max_position_embeddings": LENGTH, "bos_token_id": len(tokens) - 2}
    image = tower | {"hidden_size": 12, "image_size": SIZE, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=image, projection_dim=10)
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}
    )
    return CLIPModel(config), tokenizer, processor, {}


def siglip_model(vocabulary: int, **text: int) -> SiglipModel:
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
    image = tower | {"hidden_size": 12, "image_size": SIZE, "patch_size": 8}
    text = tower | {"hidden_size": 8, "vocab_size": vocabulary, "projection_size": 12} | text
    text["max_position_embeddings"] = LENGTH
    return SiglipModel(SiglipConfig(text_config=text, vision_config=image))


def siglip() -> tuple:
    model = pieces(vocab_size=54, unk_id=2, bos_id=-1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spiece.model").write_bytes(model)
        tokenizer = SiglipTokenizer(str(Path(folder) / "spiece.model"), model_max_length=LENGTH)
    processor = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    return siglip_model(len(tokenizer)), tokenizer, processor, {"spiece.model": model}


def siglip2() -> tuple:
    model = pieces(
        vocab_size=330,
        unk_id=3,
        bos_id=2,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        control_symbols=["<mask>"],
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary = {processor.id_to_piece(i): i for i in range(len(processor))}
    tokenizer = Siglip2Tokenizer(
        vocabulary, merges_of(vocabulary), padding_side="right", add_eos_token=True
    )
    images = SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE}, resample=2)
    return siglip_model(len(tokenizer)), tokenizer, images, {"tokenizer.model": model}


def main() -> None:
    for make in (clip, siglip, siglip2):
        torch.manual_seed(0)
        model, tokenizer, processor, files = make()
        model.eval()
        shake(model)
        photos = [photo(1, (100, 70)), photo(2, (90, 64))]
        images = [Image.open(io.BytesIO(data)) for data in photos]
        pixels = processor(images, return_tensors="pt")["pixel_values"]
        ids = tokenizer(
            TEXTS, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
        )["input_ids"]
        with torch.no_grad():
            found = model(input_ids=ids, pixel_values=pixels)
        with tempfile.TemporaryDirectory() as folder:
            for part in (model.config, processor):
                part.save_pretrained(folder)
            if make is clip:
                tokenizer.save_pretrained(folder)
                files["tokenizer.json"] = (Path(folder) / "tokenizer.json").read_bytes()
            for name in ("config.json", "preprocessor_config.json"):
                content = json.loads((Path(folder) / name).read_text())
                files[name] = json.dumps(content).encode()
        arrays = {f"file_{n}": np.frombuffer(data, np.uint8) for n, data in files.items()}
        arrays |= {f"in_photo_{i}": np.frombuffer(p, np.uint8) for i, p in enumerate(photos)}
        arrays |= {f"param_{n}": v.numpy() for n, v in model.state_dict().items()}
        arrays |= {
            "in_texts": np.array(TEXTS),
            "out_pixels": pixels.numpy(),
            "out_ids": ids.numpy(),
            "out_image": found.image_embeds.numpy(),
            "out_text": found.text_embeds.numpy(),
            "out_logits": found.logits_per_image.numpy(),
        }
        np.savez_compressed(HERE / f"{make.__name__}.npz", **arrays)


if __name__ == "__main__":
    main()
