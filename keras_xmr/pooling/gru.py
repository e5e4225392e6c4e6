"""Pooling of a sequence by a GRU."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr import layers
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.layers import batch_normalization
from keras_xmr.pooling.base import Pooling


@keras.saving.register_keras_serializable(package="keras_xmr")
class GRU(Pooling):
    """The last state of a GRU of one direction, over words (VSE++) or regions (VSRN).

    Args:
        dimension: D.
        batch_norm: Whether the state is batch-normalised, as the released code of Li et al. 2019
            does on Flickr30K, and that of Bleeker and de Rijke 2022 everywhere.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(when=(({"batch_norm": True}, {"batch_norm": True}),))

    def __init__(self, dimension: int, *, batch_norm: bool = False, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.batch_norm = batch_norm
        self.gru = layers.GRU(dimension, dtype=self.dtype_policy, name="gru")
        if batch_norm:
            self.norm = batch_normalization(dtype=self.dtype_policy, name="norm")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.gru.build(features_shape)
        if self.batch_norm:
            self.norm.build((features_shape[0], self.dimension))

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        state = self.gru(features, mask=mask)
        return self.norm(state, training=training) if self.batch_norm else state
