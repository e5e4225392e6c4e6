"""A CLIP with few random weights, in the form of Hugging Face: the published one has 600 MB."""

from __future__ import annotations

import json
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def write(folder: Path) -> None:
    """Writes model, tokenizer and image processor into a folder."""
    import torch
    from transformers import (
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        CLIPProcessor,
        CLIPTokenizer,
    )

    folder.mkdir(parents=True)
    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    vocabulary = {word: number for number, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "projection_dim": 16,
    }
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text = sizes | tokens | {"vocab_size": len(words), "max_position_embeddings": 64}
    image = sizes | {"image_size": 32, "patch_size": 16}
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=image, projection_dim=16)).save_pretrained(
        folder
    )
    size = {"height": 32, "width": 32}
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size)
    CLIPProcessor(processor, tokenizer).save_pretrained(folder)
