"""Heads of point embeddings, and of token embeddings."""

from __future__ import annotations

from typing import Literal, Unpack

import keras
from keras import ops

from keras_xmr.embeddings import kinds
from keras_xmr.heads.base import Head, PooledHead, PoolingMaker
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.gru import bidirectional_gru
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.tensors import Tensor


class Point(PooledHead):
    """A pooled vector on the unit sphere, as VSE++ has it (Faghri et al. 2018).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        normalize: Whether the vector is divided by its norm.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="point")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        normalize: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.normalize = normalize

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Point:
        mean = self.pooled(features, mask)
        return {"mean": l2_normalize(mean) if self.normalize else mean}


class PointWithFeatures(Point):
    """`Point` with the local features of the encoder, which the loss `captioning` needs.

    The key `features` has the local features, float32 (B, L, F), with zeros outside the mask, and
    is neither stored nor exported.
    """

    CONTRACT = HeadContract(keys=("features",))

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Point:
        kept = keras.ops.cast(features, "float32")
        if mask is not None:
            kept = kept * keras.ops.cast(mask, "float32")[..., None]
        return super().call(features, mask=mask) | {"features": kept}


class Tokens(Head):
    """One vector for every region, position or word, for matchers that compare them one by one.

    As SCAN and SGRAF have them (Lee et al. 2018; Diao et al. 2021, section 3.1): regions pass a
    linear layer, words a bidirectional GRU.

    Args:
        dimension: D.
        pooling: None, as tokens are not pooled.
        context: The context of a token. "none": it passes a linear layer alone.
            "bi_gru": the states of a bidirectional GRU at the token, its directions averaged.
        normalize: Whether every token is divided by its norm.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="tokens", pools=False)

    def __init__(
        self,
        dimension: int,
        pooling: None = None,
        *,
        context: Literal["none", "bi_gru"] = "none",
        normalize: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.context = context
        self.normalize = normalize
        if context == "none":
            self.linear = self.new_dense(dimension, "linear")
        else:
            self.gru = bidirectional_gru(dimension, self.dtype_policy, "gru")

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Tokens:
        is_alone = self.context == "none"
        tokens = self.linear(features) if is_alone else self.gru(features, mask=mask)
        tokens = ops.cast(tokens, "float32")
        tokens = l2_normalize(tokens) if self.normalize else tokens
        if mask is None:
            return {"tokens": tokens, "mask": ops.ones_like(tokens[..., 0])}
        mask = ops.cast(mask, "float32")
        return {"tokens": tokens * mask[..., None], "mask": mask}
