"""Projection on the unit sphere."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_xmr")
class L2Normalize(keras.layers.Layer):
    """Divides vectors (..., D) by their Euclidean norm. A vector of zeros stays one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return keras.ops.normalize(inputs, axis=-1, order=2, epsilon=1e-12)
