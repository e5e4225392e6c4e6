"""Average poolings."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers import l2_normalize


class Mean(Pooling):
    """Average over the positions, then a linear layer: the h_V of Chun et al. 2021, Fig. 3.

    Args:
        dimension: D.
        projection: Whether there is the linear layer. Without it features must be D wide: the
            embedding of a pretrained tower is unchanged.
        normalize: Whether the average is divided by its norm before the linear layer, as in the
            released code of VSE++ (Faghri et al. 2018).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(when=(({"projection": False}, {"keeps_width": True}),))

    def __init__(
        self, dimension: int, *, projection: bool = True, normalize: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.projection = projection
        self.normalize = normalize
        if projection:
            self.linear = self.new_dense(dimension, "linear")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        if not self.projection:
            self.check_width(features_shape, "mean without projection", "set projection: true")

    def call(self, features: Any, mask: Any = None) -> Any:
        mean = masked_mean(features, mask)
        if self.normalize:
            mean = keras.ops.cast(l2_normalize(keras.ops.cast(mean, "float32")), mean.dtype)
        return self.linear(mean) if self.projection else mean


def masked_mean(features: Any, mask: Any = None) -> Any:
    """Mean (B, F) of the features (B, L, F) that the mask (B, L) keeps; all of them without one."""
    if mask is None:
        return keras.ops.mean(features, axis=1)
    weights = keras.ops.cast(mask, features.dtype)[..., None]
    return keras.ops.sum(features * weights, axis=1) / keras.ops.sum(weights, axis=1)


class RectifiedMean(Pooling):
    """Average over the positions of ReLU(linear(position) on the unit sphere).

    The released code of Li et al. 2022 pools the tokens of BERT so, but averages over padding too;
    here padding does not count.
    """

    def __init__(self, dimension: int, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.linear = self.new_dense(dimension, "linear")

    def call(self, features: Any, mask: Any = None) -> Any:
        projected = l2_normalize(keras.ops.cast(self.linear(features), "float32"))
        mean = masked_mean(keras.ops.relu(projected), mask)
        return keras.ops.cast(mean, self.compute_dtype)
