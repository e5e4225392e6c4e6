"""Embeddings as arrays by name, with items along the first axis, and their vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors (..., D) of any magnitude to unit length; vectors of zeros stay."""
    # Squares of large numbers would overflow, and squares of small ones vanish.
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0)
    vectors = vectors / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1))


Arrays = Mapping[str, np.ndarray]


def select(embedding: Arrays, items: Any) -> dict[str, np.ndarray]:
    """Selects items by their numbers or a slice."""
    return {name: values[items] for name, values in embedding.items()}


def concatenate(embeddings: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Concatenates embeddings; tokens are padded to the longest."""
    joined = {}
    for name in embeddings[0]:
        arrays = [embedding[name] for embedding in embeddings]
        if name in ("tokens", "mask"):
            longest = max(array.shape[1] for array in arrays)
            arrays = [_pad(array, longest) for array in arrays]
        joined[name] = np.concatenate(arrays)
    return joined


def chunks(items: Any, size: int) -> Iterator[Any]:
    """Yields slices of at most `size` items of a sequence or an array, in order."""
    return (items[start : start + size] for start in range(0, len(items), size))


def split_items(embedding: Arrays, size: int) -> list[dict[str, np.ndarray]]:
    """Splits an embedding into parts of at most `size` items."""
    count = len(next(iter(embedding.values())))
    return [select(embedding, slice(start, start + size)) for start in range(0, count, size)]


def draw(count: int, most: int) -> np.ndarray:
    """Returns all numbers below a count, or `most` of them drawn with a seed, ascending."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _pad(array: np.ndarray, length: int) -> np.ndarray:
    return np.pad(array, [(0, 0), (0, length - array.shape[1])] + [(0, 0)] * (array.ndim - 2))
