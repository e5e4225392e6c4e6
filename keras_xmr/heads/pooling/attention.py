"""Attention pooling."""

from __future__ import annotations

from typing import Any

from data_pipelines.option_types import PositiveInt
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers import LocalAttention


class Attention(Pooling):
    """Mean over the positions with learned weights, then a linear layer.

    Args:
        dimension: D.
        hidden: Width of the attention's hidden layer; null takes half of that of the features.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(attends=True)

    def __init__(self, dimension: int, *, hidden: PositiveInt | None = None, **kwargs: Any) -> None:
        super().__init__(dimension, **kwargs)
        self.hidden = hidden
        self.attention = LocalAttention(hidden, dtype=self.dtype_policy, name="attention")
        self.linear = self.new_dense(dimension, "linear")

    def call(self, features: Any, mask: Any = None) -> Any:
        pooled, _ = self.attention(features, mask=mask)
        return self.linear(pooled[:, 0])

    def attention_weights(self, features: Any, mask: Any = None) -> Any:
        return self.attention(features, mask=mask)[1]
