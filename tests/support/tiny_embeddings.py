"""Random embeddings of every kind."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def embedding(
    kind: str, count: int, random: np.random.Generator, dimension: int = 6
) -> dict[str, tf.Tensor]:
    """Embeddings of some items; Gaussians have variances of many sizes."""

    def normal(*shape: int) -> tf.Tensor:
        return tf.constant(random.normal(size=shape), tf.float32)

    if kind == "gaussian":
        return {
            "mean": normal(count, dimension),
            "log_variance": normal(count, dimension) - 1.0,
        }
    if kind == "set":
        return {"points": normal(count, 3, dimension)}
    if kind == "point":
        return {"mean": normal(count, dimension)}
    mask = (np.arange(4) < random.integers(1, 5, count)[:, None]).astype(np.float32)
    return {"tokens": normal(count, 4, dimension) * mask[..., None], "mask": tf.constant(mask)}
