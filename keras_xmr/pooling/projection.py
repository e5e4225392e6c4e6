"""A linear map of standardised features."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.config.option_types import BelowOne, PositiveFloat
from keras_xmr.layers import l2_normalize
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.mean import masked_mean


@keras.saving.register_keras_serializable(package="keras_xmr")
class Projection(Pooling):
    """Average over the positions, standardised, then a linear map: for features of frozen towers.

    Pretrained features share a large part that tells nothing. The average is raised to a power
    (0.5 is the Hellinger map of Arandjelovic and Zisserman 2012, which suits features that are
    never negative), put on the unit sphere, centred, and scaled to a mean square of 1. Centre and
    scale are statistics of the training split: `train.start: cca` sets them, and the linear map
    with them. Without it they stay at 0 and 1.

    Args:
        dimension: D.
        power: The power that absolute values are raised to; their signs are kept.
        dropout: Part of the standardised numbers that is dropped in training.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        dimension: int,
        *,
        power: PositiveFloat = 1.0,
        dropout: BelowOne = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.power = power
        self.dropout_rate = dropout
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        width = features_shape[-1]
        # Also in mixed precision: little is left after centring, and half precision would lose it.
        whole = {"dtype": "float32", "autocast": False}
        fixed = whole | {"trainable": False}
        self.centre = self.add_weight(name="centre", shape=(width,), initializer="zeros", **fixed)
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones", **fixed)
        self.kernel = self.add_weight(
            name="kernel", shape=(width, self.dimension), initializer="orthogonal", **whole
        )

    def average(self, features: Any, mask: Any = None) -> Any:
        """The average of the features (B, L, F), on the unit sphere: float32 (B, F)."""
        mean = masked_mean(ops.cast(features, "float32"), mask)
        if self.power != 1.0:
            # Its gradient at 0 would be infinite.
            mean = ops.sign(mean) * ops.power(ops.abs(mean) + 1e-12, self.power)
        return l2_normalize(mean)

    def standardised(self, features: Any, mask: Any = None) -> Any:
        """What the linear map is applied to: the average, centred and scaled, float32 (B, F)."""
        return (self.average(features, mask) - self.centre) * self.scale

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        standardised = self.standardised(features, mask)
        return ops.matmul(self.dropout(standardised, training=training), self.kernel)

    def standardise(self, averages: np.ndarray, centre: np.ndarray) -> None:
        """Sets centre (F,), and scale by what `average` gives of the training split, (N, F)."""
        self.centre.assign(centre)
        self.scale.assign(1 / np.sqrt(np.square(averages - centre).mean()))

    def begin_at(self, kernel: np.ndarray) -> None:
        """Sets the linear map (F, D) of what is centred, but not scaled."""
        self.kernel.assign(kernel / float(self.scale))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"power": self.power, "dropout": self.dropout_rate}
