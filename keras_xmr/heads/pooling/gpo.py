"""Generalized pooling operator."""

from __future__ import annotations

import math
from typing import Any

from keras import ops

from data_pipelines.option_types import EvenInt, PositiveInt
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers.gru import bidirectional_gru

_TEMPERATURE = 0.1


class GPO(Pooling):
    """Weighted mean of the sorted features, with weights by rank: VSE-infinity's pooling.

    Every dimension is sorted over the positions, largest first, and rank k of all dimensions has
    the weight softmax(w GRU(p)_k / 0.1), where p are sines and cosines of the rank. The weights
    depend on nothing but the number of positions, so the pooling can become average or max
    pooling, or anything between (Chen et al. 2021, Eq. 5 to 8). The GRU is bidirectional and its
    directions are averaged.

    Args:
        dimension: D.
        projection: Whether features pass a linear layer of D outputs before they are pooled, as
            in VSE-infinity. Without it, features must be D wide.
        encoding: Width of the encoding of a rank, an even number.
        hidden: Width of each direction of the GRU.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        UserError: If features are not D wide and not projected.
    """

    CONTRACT = PoolingContract(when=(({"projection": False}, {"keeps_width": True}),))

    def __init__(
        self,
        dimension: int,
        *,
        projection: bool = True,
        encoding: EvenInt = 32,
        hidden: PositiveInt = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.projection = projection
        self.encoding = encoding
        self.hidden = hidden
        if projection:
            self.linear = self.new_dense(dimension, "linear")
        self.gru = bidirectional_gru(hidden, self.dtype_policy, "gru")
        self.rank_score = self.new_dense(1, "rank_score", use_bias=False)

    def build(self, features_shape: tuple[Any, ...]) -> None:
        if not self.projection:
            self.check_width(features_shape, "gpo without projection", "set projection: true")

    def call(self, features: Any, mask: Any = None) -> Any:
        if self.projection:
            features = self.linear(features)
        length = ops.shape(features)[1]
        if mask is None:
            ranked = -ops.sort(-features, axis=1)
            weights = self._weights(length)
        else:
            # Masked positions are sorted to the end.
            count = ops.sum(ops.cast(mask, "int32"), axis=1)
            counts = ops.arange(length)[None, :] < count[:, None]
            infinity = ops.cast(float("inf"), features.dtype)
            ranked = -ops.sort(ops.where(mask[..., None], -features, infinity), axis=1)
            ranked = ops.where(counts[..., None], ranked, 0.0)
            weights = self._weights(length, counts)
        return ops.sum(ranked * ops.cast(weights, ranked.dtype)[..., None], axis=1)

    def _weights(self, length: Any, counts: Any = None) -> Any:
        """The weight of each rank, (1, L), or (B, L) with a mask (B, L)."""
        encoding = ops.cast(_rank_encoding(length, self.encoding), self.compute_dtype)[None]
        if counts is not None:
            encoding = ops.tile(encoding, (ops.shape(counts)[0], 1, 1))
        scores = self.rank_score(self.gru(encoding, mask=counts))[..., 0]
        scores = ops.cast(scores, "float32") / _TEMPERATURE
        if counts is not None:
            scores = ops.where(counts, scores, -1e9)
        return ops.softmax(scores, axis=-1)


def _rank_encoding(length: Any, width: int) -> Any:
    """Sines and cosines of the ranks 0 to length - 1, interleaved: float32 (length, width)."""
    frequency = ops.exp(ops.arange(0, width, 2, dtype="float32") * (-math.log(10000.0) / width))
    angle = ops.cast(ops.arange(length), "float32")[:, None] * frequency[None, :]
    pairs = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)
    return ops.reshape(pairs, (-1, width))
