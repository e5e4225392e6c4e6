"""Tiny presets of KerasHub with random weights, in the files that real ones have."""

from __future__ import annotations

import io
import json
from pathlib import Path

import keras
import keras_hub
import numpy as np
import safetensors.numpy
import sentencepiece

WORDS = (
    "a red green blue round square circle triangle small large left right of above below the two"
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MERGES = ["r e", "re d</w>", "d o", "do g</w>", "o f</w>"]


def bert(folder: Path, vocabulary_size: int | None = None, layers: int = 2) -> Path:
    """A BERT of a few layers, 32 wide, that knows words, letters and endings."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = [*SPECIAL, *WORDS.split(), *letters[1:], *(f"##{c}" for c in letters), "."]
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=vocabulary_size or len(vocabulary),
        num_layers=layers,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=48,
        max_sequence_length=24,
    )
    backbone.save_to_preset(str(folder))
    keras_hub.tokenizers.BertTokenizer(vocabulary, lowercase=True).save_to_preset(str(folder))
    return folder


def transformers_bert(folder: Path, leave_out: str | None = None) -> dict[str, np.ndarray]:
    """A BERT of one layer in the layout of transformers; returns its weights."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (9, 8),
        "embeddings.position_embeddings.weight": (12, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
    }
    layer = "encoder.layer.0"
    linear = {f"{layer}.attention.self.{part}": (8, 8) for part in ("query", "key", "value")}
    linear |= {f"{layer}.attention.output.dense": (8, 8), "pooler.dense": (8, 8)}
    linear |= {f"{layer}.intermediate.dense": (16, 8), f"{layer}.output.dense": (8, 16)}
    for name, (out, width) in linear.items():
        shapes |= {f"{name}.weight": (out, width), f"{name}.bias": (out,)}
    for name in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{name}.LayerNorm.{part}": (8,) for part in ("weight", "bias")}
    shapes.pop(leave_out, None)
    weights = {
        f"bert.{name}": random.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    folder.mkdir()
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "vocab_size": 9,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "intermediate_size": 16,
        "max_position_embeddings": 12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "dog", "##s", "red"]) + "\n")
    return weights


def roberta(folder: Path) -> Path:
    """A RoBERTa without a tokenizer."""
    keras.utils.set_random_seed(2)
    keras_hub.models.RobertaBackbone(
        vocabulary_size=40,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=16,
        max_sequence_length=40,
    ).save_to_preset(str(folder))
    return folder


def clip(folder: Path, size: int = 32) -> Path:
    """A CLIP of one layer a tower, whose joint space is 8 wide."""
    letters = [chr(c) for c in range(ord("!"), ord("~") + 1)]
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*letters, *(f"{c}</w>" for c in letters), *merged]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tower = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 24}
    keras.utils.set_random_seed(3)
    backbone = keras_hub.models.CLIPBackbone(
        keras_hub.models.CLIPVisionEncoder(
            patch_size=8, hidden_dim=16, image_shape=(size, size, 3), **tower
        ),
        keras_hub.models.CLIPTextEncoder(
            vocabulary_size=len(vocabulary),
            embedding_dim=12,
            hidden_dim=12,
            max_sequence_length=30,
            **tower,
        ),
        projection_dim=8,
    )
    backbone.save_to_preset(str(folder))
    keras_hub.tokenizers.CLIPTokenizer(vocabulary, MERGES).save_to_preset(str(folder))
    keras_hub.layers.CLIPImageConverter(
        image_size=(size, size), scale=[1 / 60, 1 / 61, 1 / 62], offset=[-2.1, -2.0, -1.9]
    ).save_to_preset(str(folder))
    return folder


def siglip_pieces() -> bytes:
    """A model of SentencePiece with 34 pieces, the end being 1."""
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([WORDS, "a red circle", "the green square"]),
        model_writer=proto,
        vocab_size=34,
        pad_id=-1,
        bos_id=-1,
        eos_id=1,
        unk_id=0,
        minloglevel=2,
    )
    return proto.getvalue()


def siglip(folder: Path, size: int = 32) -> Path:
    """A SigLIP of one layer a tower, 8 wide."""
    tower = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    keras.utils.set_random_seed(4)
    backbone = keras_hub.models.SigLIPBackbone(
        keras_hub.models.SigLIPVisionEncoder(patch_size=8, image_shape=(size, size, 3), **tower),
        keras_hub.models.SigLIPTextEncoder(
            vocabulary_size=34, embedding_dim=8, max_sequence_length=16, **tower
        ),
    )
    backbone.save_to_preset(str(folder))
    keras_hub.tokenizers.SigLIPTokenizer(siglip_pieces()).save_to_preset(str(folder))
    keras_hub.layers.SigLIPImageConverter(
        image_size=(size, size), scale=1 / 127.5, offset=-1.0
    ).save_to_preset(str(folder))
    return folder


def vit(folder: Path, size: int = 32) -> Path:
    """A ViT of one layer, 16 wide, with patches of 8 pixels."""
    keras.utils.set_random_seed(5)
    keras_hub.models.ViTBackbone(
        image_shape=(size, size, 3),
        patch_size=8,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=24,
        dropout_rate=0.5,
    ).save_to_preset(str(folder))
    keras_hub.layers.ViTImageConverter(scale=1 / 127.5, offset=-1.0).save_to_preset(str(folder))
    return folder


def resnet(folder: Path) -> Path:
    """A ResNet with two stages of one block."""
    keras.utils.set_random_seed(6)
    keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
    ).save_to_preset(str(folder))
    keras_hub.layers.ResNetImageConverter(scale=1 / 255).save_to_preset(str(folder))
    return folder
