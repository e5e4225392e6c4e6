"""A residual layer on the embedding of a pretrained tower, which begins as the identity."""

from __future__ import annotations

from typing import Any

from data_pipelines.option_types import PositiveInt
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.heads.pooling.mean import masked_mean


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
        self.width = width
        self.down = self.new_dense(width, "down", activation="gelu")
        self.up = self.new_dense(dimension, "up", kernel_initializer="zeros")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.check_width(features_shape, "adapter", f"set model.dimension: {features_shape[-1]}")

    def call(self, features: Any, mask: Any = None) -> Any:
        mean = masked_mean(features, mask)
        return mean + self.up(self.down(mean))
