"""Statistics of sets of embeddings."""

from __future__ import annotations

import numpy as np

from keras_xmr.evaluation.embed import Arrays


def set_similarity(embedding: Arrays) -> float | None:
    """Mean cosine between two different embeddings of one item's set; 1 is a collapsed set.

    Args:
        embedding: The embedding of many items, with `points` (items, K, D).

    Returns:
        The mean over items and pairs; None if there are no sets, or their K is 1.
    """
    points = embedding.get("points")
    if points is None or points.shape[1] == 1:
        return None
    size = points.shape[1]
    norms = np.linalg.norm(points, axis=2, keepdims=True)
    # The squared norm of a sum of K unit vectors is K and the cosines of all ordered pairs.
    squares = (np.sum(points / np.maximum(norms, 1e-12), axis=1, dtype=np.float64) ** 2).sum(axis=1)
    return float(np.mean((squares - size) / (size * (size - 1))))
