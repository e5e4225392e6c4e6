"""A residual layer on the embedding of a pretrained tower, which begins as the identity."""

from __future__ import annotations

from typing import Any

import keras

from data_pipelines.errors import UserError
from data_pipelines.option_types import PositiveInt
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.heads.pooling.mean import masked_mean


@keras.saving.register_keras_serializable(package="keras_xmr")
class Adapter(Pooling):
    """Average over the positions plus up(gelu(down(average))), where `up` begins at 0.

    As CLIP-Adapter (Gao et al. 2024), but with GELU, and with a weight of 1 for both parts.
    A model with it is validated before its first step, too: where training makes it no better, its
    best weights are those of the pretrained tower as it is.

    Args:
        dimension: D, which is the width of the features.
        width: Width of the hidden layer.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(keeps_width=True)

    def __init__(self, dimension: int, *, width: PositiveInt = 64, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        policy = self.dtype_policy
        self.width = width
        self.down = keras.layers.Dense(width, "gelu", dtype=policy, name="down")
        self.up = keras.layers.Dense(dimension, kernel_initializer="zeros", dtype=policy, name="up")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        if features_shape[-1] != self.dimension:
            raise UserError(
                f"adapter keeps the width of the features, {features_shape[-1]}, but the "
                f"dimension is {self.dimension}; set model.dimension: {features_shape[-1]}"
            )
        self.down.build((features_shape[0], self.dimension))
        self.up.build((features_shape[0], self.width))

    def call(self, features: Any, mask: Any = None) -> Any:
        mean = masked_mean(features, mask)
        return mean + self.up(self.down(mean))
