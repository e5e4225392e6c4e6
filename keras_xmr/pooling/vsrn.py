"""Pooling of positions that reason about one another."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import PoolingContract
from keras_xmr.config.option_types import PositiveInt
from keras_xmr.layers import GraphReasoning, L2Normalize
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.recurrent import GRU


class VSRN(Pooling):
    """Graph reasoning over the positions of any encoder, then a GRU (Li et al. 2019, section 3).

    VSRN reads regions of a detector: that is the encoder `vsrn` with the pooling `gru`. This is the
    same network for the positions of a picture without a detector: a linear layer, blocks of graph
    reasoning between unit vectors, and the batch-normalised last state of a GRU over the positions,
    row by row, as in the released code of Bleeker and de Rijke 2022.

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
        # The square of a norm overflows half precision.
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
