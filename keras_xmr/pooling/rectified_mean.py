"""Average pooling of projected positions."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers import l2_normalize
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.mean import masked_mean


@keras.saving.register_keras_serializable(package="keras_xmr")
class RectifiedMean(Pooling):
    """Average over the positions of ReLU(linear(position) on the unit sphere).

    What the released code of Li et al. 2022 makes of the tokens of BERT. It averages over the
    padding, too; here only what counts is averaged, so that padding changes nothing.
    """

    def __init__(self, dimension: int, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.linear = keras.layers.Dense(dimension, dtype=self.dtype_policy, name="linear")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.linear.build(features_shape)

    def call(self, features: Any, mask: Any = None) -> Any:
        projected = l2_normalize(keras.ops.cast(self.linear(features), "float32"))
        mean = masked_mean(keras.ops.relu(projected), mask)
        return keras.ops.cast(mean, self.compute_dtype)
