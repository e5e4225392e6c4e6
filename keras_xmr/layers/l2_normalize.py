"""Projection on the unit sphere."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers.part import RecordedLayer


def l2_normalize(vectors: Any, axis: int = -1) -> Any:
    """Vectors divided by their Euclidean norm; a vector of zeros stays one.

    Unlike that of `keras.ops.normalize`, the gradient is finite at a vector of zeros.
    """
    squares = keras.ops.sum(keras.ops.square(vectors), axis=axis, keepdims=True)
    return vectors * keras.ops.rsqrt(keras.ops.maximum(squares, 1e-24))


class L2Normalize(RecordedLayer):
    """Divides vectors by their Euclidean norm. A vector of zeros stays one.

    Args:
        axis: The axis that the vectors lie on.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.axis = axis

    def call(self, inputs: Any) -> Any:
        return l2_normalize(inputs, self.axis)
