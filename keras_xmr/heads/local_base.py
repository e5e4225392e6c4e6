"""Base class of heads with a local attention branch beside the pooled vector."""

from __future__ import annotations

from typing import Any

from keras_xmr.heads.base import Head
from keras_xmr.layers import LocalResidual
from keras_xmr.pooling import Pooling


class LocalHead(Head):
    """A head whose embedding is made of a pooled vector and of K-headed local attention.

    A subclass makes both layers, `pooling` and `residual`.
    """

    pooling: Pooling
    residual: LocalResidual

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.pooling.build(features_shape)
        self.residual.build(features_shape)

    def attention_maps(self, features: Any, mask: Any = None) -> dict[str, Any]:
        _, weights = self.residual.attention(features, mask=mask)
        return super().attention_maps(features, mask) | {"embedding": weights}
