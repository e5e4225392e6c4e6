"""Pooling of positions that reason about one another."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import PoolingContract
from keras_xmr.config.option_types import PositiveInt
from keras_xmr.layers import GraphReasoning, L2Normalize
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.gru import GRU


@keras.saving.register_keras_serializable(package="keras_xmr")
class VSRN(Pooling):
    """Graph reasoning over the positions of any encoder, then a GRU (Li et al. 2019, section 3).

    VSRN reads regions of a detector: that is the encoder `vsrn` with the pooling `gru`. This is the
    same network for the places of a picture, where no detector has run: a linear layer, blocks of
    graph reasoning between unit vectors, and the last state of a GRU over the places, row by row,
    which is batch-normalised, as in the released code of Bleeker and de Rijke 2022.

    Args:
        dimension: D, also the width of the graph.
        blocks: Blocks of graph reasoning.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(batch_norm=True)

    def __init__(self, dimension: int, *, blocks: PositiveInt = 4, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.blocks = blocks
        policy = self.dtype_policy
        self.linear = keras.layers.Dense(dimension, dtype=policy, name="linear")
        # In half precision the square of a norm is beyond what it can hold.
        self.normalize = L2Normalize(dtype="float32", name="normalize")
        self.reasoning = [
            GraphReasoning(dtype=policy, name=f"reasoning_{block}") for block in range(blocks)
        ]
        self.gru = GRU(dimension, batch_norm=True, dtype=policy, name="gru")

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.linear.build(features_shape)
        shape = (*features_shape[:-1], self.dimension)
        for block in self.reasoning:
            block.build(shape)
        self.gru.build(shape)

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        x = self.normalize(self.linear(features))
        for block in self.reasoning:
            x = block(x, mask=mask, training=training)
        return self.gru(self.normalize(x), mask=mask, training=training)
