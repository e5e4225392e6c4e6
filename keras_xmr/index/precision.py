"""Whether float16 may hold the vectors of an index."""

from __future__ import annotations

import numpy as np

from keras_xmr.index.backends import Precision

_AT_ONCE = 64


def choose_precision(vectors: np.ndarray, queries: np.ndarray) -> Precision:
    """Float16 where that changes the ten best photos of no query, else float32.

    Args:
        vectors: Of photos, float32 (N, K, D).
        queries: Of captions, float32 (M, K', D).
    """
    rounded = vectors.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        return "float32"
    for start in range(0, len(queries), _AT_ONCE):
        some = queries[start : start + _AT_ONCE]
        if not np.array_equal(_top(some, vectors), _top(some, rounded)):
            return "float32"
    return "float16"


def _top(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The ten best photos of each query, as sets."""
    (items, rows, width), (many, own, _) = vectors.shape, queries.shape
    products = queries.reshape(-1, width) @ vectors.reshape(-1, width).T
    scores = products.reshape(many, own, items, rows).max(axis=(1, 3))
    return np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :10], axis=1)
