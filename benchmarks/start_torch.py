"""The models of other libraries that `start.py` loads beside ours: made up, and started.

Weights are random, which changes no time, and the words of the vocabulary are made up: nothing is
read from a network. What sentence-transformers loads has the sizes of all-MiniLM-L6-v2, and what
open_clip loads is its ViT-S-32.

    TORCH_PYTHON benchmarks/start_torch.py make FOLDER
    TORCH_PYTHON benchmarks/start_torch.py sentence-transformers|open_clip FOLDER
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

TEXT = "a red circle left of a small blue square"
CLIP = "ViT-S-32"


def make(folder: Path) -> None:
    """Writes both models."""
    import open_clip
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TEXT.split()]
    words += [f"word{number}" for number in range(30_522 - len(words))]
    bert = folder / "bert"
    bert.mkdir()
    (bert / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(bert / "vocab.txt")).save_pretrained(bert)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
    BertModel(BertConfig(**sizes)).save_pretrained(bert)
    transformer = models.Transformer(str(bert))
    pooling = models.Pooling(384)
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(folder / "sentence"))
    torch.save(open_clip.create_model(CLIP).state_dict(), folder / "clip.pt")
    for name, package in (
        ("sentence-transformers", "sentence-transformers"),
        ("open_clip", "open_clip_torch"),
    ):
        print(name, metadata.version(package))


def embed_by_sentence_transformers(folder: Path) -> None:
    """Loads the model, and embeds a text."""
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(folder / "sentence"), device="cpu").encode([TEXT])


def embed_by_open_clip(folder: Path) -> None:
    """Loads the model, and embeds a text."""
    import open_clip
    import torch

    model, _, _ = open_clip.create_model_and_transforms(CLIP, pretrained=str(folder / "clip.pt"))
    model.eval()
    with torch.no_grad():
        model.encode_text(open_clip.get_tokenizer(CLIP)([TEXT]))


WORKS = {
    "make": make,
    "sentence-transformers": embed_by_sentence_transformers,
    "open_clip": embed_by_open_clip,
}

if __name__ == "__main__":
    WORKS[sys.argv[1]](Path(sys.argv[2]))
