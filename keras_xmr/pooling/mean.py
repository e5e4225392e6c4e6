"""Average pooling."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.pooling.base import Pooling


@keras.saving.register_keras_serializable(package="keras_xmr")
class Mean(Pooling):
    """Average over the positions, then a linear layer: the h_V of Chun et al. 2021, Fig. 3."""

    def __init__(self, dimension: int, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.linear = keras.layers.Dense(dimension, dtype=self.dtype_policy, name="linear")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.linear.build((features_shape[0], features_shape[-1]))

    def call(self, features: Any, mask: Any = None) -> Any:
        return self.linear(masked_mean(features, mask))


def masked_mean(features: Any, mask: Any = None) -> Any:
    """Mean (B, F) of the features (B, L, F) that the mask (B, L) keeps; all of them without one."""
    if mask is None:
        return keras.ops.mean(features, axis=1)
    weights = keras.ops.cast(mask, features.dtype)[..., None]
    return keras.ops.sum(features * weights, axis=1) / keras.ops.sum(weights, axis=1)
