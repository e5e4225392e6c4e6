"""Small published models: random towers in the files that transformers.js and `optimum` write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tokenizers
from onnx import TensorProto, helper, numpy_helper
from tokenizers import models, normalizers, pre_tokenizers, processors

SIDE, PATCH, WIDTH, DIMENSION, LENGTH = 8, 4, 16, 6, 8
MEAN, DEVIATION = [0.48, 0.45, 0.40], [0.27, 0.26, 0.25]
START, END, UNKNOWN = 0, 1, 2
WORDS = ("a", "photo", "red", "green", "blue", "dog")
_FLOAT, _IDS = TensorProto.FLOAT, TensorProto.INT64


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of both towers."""
    random = np.random.default_rng(seed)
    shapes = {
        "words": (3 + len(WORDS), WIDTH),
        "positions": (LENGTH, WIDTH),
        "text": (WIDTH, DIMENSION),
        "patches": (WIDTH, 3, PATCH, PATCH),
        "image": (WIDTH, DIMENSION),
    }
    return {
        name: random.normal(size=shape).astype(np.float32) / 2 for name, shape in shapes.items()
    }


def text_nodes(kind: str) -> list[Any]:
    """Operations from ids to the embedding: at the end of a text, or of its padding (SigLIP)."""
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["embedded"]),
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Slice", ["positions", "zero", "length"], ["place"]),
        helper.make_node("Add", ["embedded", "place"], ["hidden"]),
        helper.make_node("CumSum", ["hidden", "axis"], ["read"]),
    ]
    if kind == "siglip":
        return [
            *nodes,
            helper.make_node("Gather", ["read", "last"], ["pooled"], axis=1),
            helper.make_node("MatMul", ["pooled", "text"], ["pooler_output"]),
        ]
    return [
        *nodes,
        helper.make_node("Equal", ["input_ids", "end"], ["is_end"]),
        helper.make_node("Cast", ["is_end"], ["ends"], to=_FLOAT),
        helper.make_node("ArgMax", ["ends"], ["first"], axis=1, keepdims=1),
        helper.make_node("Unsqueeze", ["first", "two"], ["index"]),
        helper.make_node("Expand", ["index", "wide"], ["indices"]),
        helper.make_node("GatherElements", ["read", "indices"], ["chosen"], axis=1),
        helper.make_node("Squeeze", ["chosen", "one"], ["pooled"]),
        helper.make_node("MatMul", ["pooled", "text"], ["text_embeds"]),
    ]


def _model(
    nodes: Sequence[Any], inputs: Sequence[Any], output: str, initializers: dict[str, np.ndarray]
) -> Any:
    made = [numpy_helper.from_array(values, name) for name, values in initializers.items()]
    outputs = [helper.make_tensor_value_info(output, _FLOAT, ["batch", DIMENSION])]
    graph = helper.make_graph(list(nodes), "tower", list(inputs), outputs, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def text_model(kind: str, seed: int = 0) -> Any:
    """A text tower of a CLIP or a SigLIP."""
    numbers = {"zero": [0], "one": [1], "two": [2], "end": [END], "wide": [1, 1, WIDTH]}
    constants = {name: np.array(values, np.int64) for name, values in numbers.items()}
    constants |= {"axis": np.array(1, np.int64), "last": np.array(-1, np.int64)}
    ids = helper.make_tensor_value_info("input_ids", _IDS, ["batch", "sequence"])
    output = "pooler_output" if kind == "siglip" else "text_embeds"
    return _model(text_nodes(kind), [ids], output, weights(seed) | constants)


def vision_model(kind: str, seed: int = 0) -> Any:
    """An image tower: patches, their means and a projection."""
    output = "pooler_output" if kind == "siglip" else "image_embeds"
    nodes = [
        helper.make_node("Conv", ["pixel_values", "patches"], ["grid"], strides=[PATCH, PATCH]),
        helper.make_node("Relu", ["grid"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("MatMul", ["flat", "image"], [output]),
    ]
    pixels = helper.make_tensor_value_info("pixel_values", _FLOAT, ["batch", 3, SIDE, SIDE])
    return _model(nodes, [pixels], output, weights(seed))


def tokenizer(kind: str) -> Any:
    """A tokenizer of words, between a start and an end, or with an end (SigLIP)."""
    words = ["<s>", "</s>", "[UNK]", *WORDS]
    made = tokenizers.Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(words[:3])
    single = "$A </s>" if kind == "siglip" else "<s> $A </s>"
    made.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[("<s>", START), ("</s>", END)]
    )
    return made


def write(folder: Path, kind: str = "clip", end: str = "", seed: int = 0) -> Path:
    """Writes a model, whose towers have names with an end such as `_fp16`."""
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    onnx.save(text_model(kind, seed), str(folder / "onnx" / f"text_model{end}.onnx"))
    onnx.save(vision_model(kind, seed), str(folder / "onnx" / f"vision_model{end}.onnx"))
    tokenizer(kind).save(str(folder / "tokenizer.json"))
    if kind == "siglip":
        size, crop = {"height": SIDE, "width": SIDE}, {}
    else:
        size, crop = {"shortest_edge": SIDE}, {"do_center_crop": True, "crop_size": SIDE}
    files = {
        "config.json": {"model_type": kind, "text_config": {"max_position_embeddings": LENGTH}},
        "preprocessor_config.json": {
            "size": size,
            "resample": 3,
            "image_mean": MEAN,
            "image_std": DEVIATION,
            **crop,
        },
        "tokenizer_config.json": {"pad_token": "</s>"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder
