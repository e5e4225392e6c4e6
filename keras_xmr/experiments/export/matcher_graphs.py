"""Writes the scores of a matcher as ONNX, with what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import tensors
from keras_xmr.experiments.export.onnx_export import write_graph
from keras_xmr.model.retriever import Retriever
from keras_xmr.search.embedder import embedder as files

_ITEMS = 3
"""Number of items by which files are compared with the model."""


def write_matcher(model: Retriever, target: Path) -> dict[str, float]:
    """Writes the scores of a matcher, and what they need; returns its constants."""
    matcher = model.matcher
    outputs = {
        "image": embeddings.for_matching(dict(model.image_tower.output)),
        "text": embeddings.for_matching(dict(model.text_tower.output)),
    }
    specs = {side: _specs(output) for side, output in outputs.items()}
    samples = {side: _sample(spec, number) for number, (side, spec) in enumerate(specs.items())}
    sides = {"image": files.GALLERY, "text": files.QUERY}
    side: files.Side
    for side, path in files.PREPARE.items():
        prepared = matcher.prepare(_tensors(samples[side]), side)
        if prepared.keys() - samples[side].keys():
            names = list(specs[side])

            def prepare(*values: tf.Tensor, names: Any = names, side: Any = side) -> Any:
                added = matcher.prepare(dict(zip(names, values, strict=True)), side)
                return {name: value for name, value in added.items() if name not in names}

            write_graph(
                "the matcher",
                prepare,
                _named(specs[side], files.GALLERY),
                target / path,
                (),
                {f"{files.GALLERY}{name}": value for name, value in samples[side].items()},
                is_exact=True,
            )
    directed: Any = "text" if matcher.contract.directed else None

    def score(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": matcher(*_split(values, specs), query=directed)}

    query = specs["text"]
    if "tokens" in query:  # One text at a time, so that no tile has another length.
        query = {name: tf.TensorSpec([1, *s.shape[1:]], s.dtype) for name, s in query.items()}
        samples["text"] = {name: value[:1] for name, value in samples["text"].items()}
    inputs = [*_named(specs["image"], sides["image"]), *_named(query, sides["text"])]
    sample = {
        f"{sides[side]}{name}": value
        for side, values in samples.items()
        for name, value in values.items()
    }
    write_graph("the matcher", score, inputs, target / files.SCORE, (), sample, is_exact=True)
    _write_bound(model, target)
    return {name: float(value) for name, value in matcher.search_constants().items()}


def _write_bound(model: Retriever, target: Path) -> None:
    """Writes the bound of the scores of a matcher, if it has one."""
    matcher = model.matcher
    towers = {"image": model.image_tower, "text": model.text_tower}
    prepared = {
        side: tensors(
            matcher.prepare(
                _tensors(_sample(_specs(embeddings.for_matching(dict(tower.output)), True), 0)),
                side,  # type: ignore[arg-type]
            )
        )
        for side, tower in towers.items()
    }
    similar = np.linspace(-1, 1, _ITEMS, dtype=np.float32)
    if matcher.score_bound(tf.constant(similar), *prepared.values()) is None:
        return
    specs = {
        side: {name: tf.TensorSpec([None, *v.shape[1:]], v.dtype) for name, v in embedding.items()}
        for side, embedding in prepared.items()
    }

    def bound(similarity: tf.Tensor, *values: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"bound": matcher.score_bound(similarity, *_split(values, specs))}

    names = (files.GALLERY, files.QUERY)
    inputs = [tf.TensorSpec([None], tf.float32, name="similarity")]
    sample = {"similarity": similar}
    for name, (side, embedding) in zip(names, specs.items(), strict=True):
        inputs += _named(embedding, name)
        sample |= {f"{name}{key}": np.asarray(value) for key, value in prepared[side].items()}
    write_graph("the matcher", bound, inputs, target / files.BOUND, (), sample, is_exact=True)


def _specs(output: Mapping[str, Any], is_fixed: bool = False) -> dict[str, tf.TensorSpec]:
    """Returns specifications of an embedding of any number of items.

    Args:
        output: The symbolic output of a tower.
        is_fixed: Whether the number of points is fixed; other queries may have other numbers.
    """
    specs = {}
    for name, tensor in output.items():
        shape = [None, *tensor.shape[1:]]
        if name == "points" and not is_fixed:
            shape[1] = None
        specs[name] = tf.TensorSpec(shape, tf.float32)
    return specs


def _named(specs: Mapping[str, tf.TensorSpec], prefix: str) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(s.shape, s.dtype, name=f"{prefix}{name}") for name, s in specs.items()]


def _sample(specs: Mapping[str, tf.TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Returns a random embedding of a few items."""
    random = np.random.default_rng(seed)
    arrays = {}
    for name, spec in specs.items():
        shape = [_ITEMS, *(size or 4 for size in spec.shape[1:])]
        values = random.normal(size=shape) * (0.1 if name == "log_variance" else 1.0)
        arrays[name] = values.astype(np.float32)
    if "mask" in arrays:
        arrays["mask"] = np.ones_like(arrays["mask"])
    if "offset" in arrays:
        arrays["offset"] = np.abs(arrays["offset"])
    return arrays


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values) for name, values in arrays.items()}


def _split(
    values: Sequence[tf.Tensor], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Splits tensors into the embeddings of images and captions."""
    images, captions = specs.values()
    return (
        dict(zip(images, values[: len(images)], strict=True)),
        dict(zip(captions, values[len(images) :], strict=True)),
    )
