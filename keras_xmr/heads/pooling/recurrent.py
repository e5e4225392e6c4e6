"""Poolings with a GRU, over the sequence or over its ranks."""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_xmr import layers
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers import GraphReasoning, L2Normalize, batch_normalization
from keras_xmr.layers.gru import bidirectional_gru
from keras_xmr.layers.positions import last_positions
from keras_xmr.parts.contracts import PoolingContract
from keras_xmr.parts.option_types import EvenInt, LayerOptions, PositiveInt
from keras_xmr.parts.tensors import Shape, Tensor


class GRU(Pooling):
    """The last state of a GRU of one direction, over words (VSE++) or regions (VSRN).

    Args:
        dimension: D.
        batch_norm: Whether the state is batch-normalised, as the released code of Li et al. 2019
            does on Flickr30K, and the code of Bleeker and de Rijke 2022 everywhere.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(when=(({"batch_norm": True}, {"batch_norm": True}),))

    def __init__(
        self, dimension: int, *, batch_norm: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.batch_norm = batch_norm
        self.gru = layers.PackedGRU(dimension, dtype=self.dtype_policy, name="gru")
        if batch_norm:
            self.norm = batch_normalization(dtype=self.dtype_policy, name="norm")

    def call(
        self, features: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        state = self.gru(features, mask=mask)
        return self.norm(state, training=training) if self.batch_norm else state


class BiGRU(Pooling):
    """The final states of a bidirectional GRU, D / 2 numbers per direction.

    Args:
        dimension: D, an even number.
        final_state: "both" takes the state of each direction after it has read the whole
            sequence. "released" takes both at the last word, as the released code of Chun et
            al. 2021 does: its backward direction has then read one word only.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If D is odd.
    """

    CONTRACT = PoolingContract(even=True)

    def __init__(
        self,
        dimension: int,
        *,
        final_state: Literal["both", "released"] = "both",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, **kwargs)
        if dimension % 2:
            raise ValueError(f"the two directions share the dimension, so it is even: {dimension}")
        self.final_state = final_state
        self.forward_gru = layers.PackedGRU(dimension // 2, dtype=self.dtype_policy, name="forward")
        self.backward_gru = layers.PackedGRU(
            dimension // 2,
            go_backwards=final_state == "both",
            dtype=self.dtype_policy,
            name="backward",
        )

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        forward = self.forward_gru(features, mask=mask)
        if self.final_state == "both":
            backward = self.backward_gru(features, mask=mask)
        else:
            backward = self.backward_gru(_last(features, mask))
        return keras.ops.concatenate([forward, backward], axis=-1)


def _last(features: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the features (B, 1, F) of the last valid position."""
    if mask is None:
        return features[:, -1:]
    return keras.ops.take_along_axis(features, last_positions(mask)[..., None], axis=1)


class VSRNPooling(Pooling):
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

    def __init__(
        self, dimension: int, *, blocks: PositiveInt = 4, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.blocks = blocks
        policy = self.dtype_policy
        self.linear = self.new_dense(dimension, "linear")
        # The square of a norm overflows half precision.
        self.normalize = L2Normalize(dtype="float32", name="normalize")
        self.reasoning = [
            GraphReasoning(dtype=policy, name=f"reasoning_{block}") for block in range(blocks)
        ]
        self.gru = GRU(dimension, batch_norm=True, dtype=policy, name="gru")

    def call(
        self, features: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        x = self.normalize(self.linear(features))
        for block in self.reasoning:
            x = block(x, mask=mask, training=training)
        return self.gru(self.normalize(x), mask=mask, training=training)


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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.projection = projection
        self.encoding = encoding
        self.hidden = hidden
        if projection:
            self.linear = self.new_dense(dimension, "linear")
        self.gru = bidirectional_gru(hidden, self.dtype_policy, "gru")
        self.rank_score = self.new_dense(1, "rank_score", use_bias=False)

    def build(self, features_shape: Shape) -> None:
        if not self.projection:
            self.check_width(features_shape, "gpo without projection", "set projection: true")

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
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

    def _weights(self, length: Any, counts: Tensor | None = None) -> Tensor:
        """Returns the weight of each rank, (1, L), or (B, L) with a mask (B, L)."""
        encoding = ops.cast(_rank_encoding(length, self.encoding), self.compute_dtype)[None]
        if counts is not None:
            encoding = ops.tile(encoding, (ops.shape(counts)[0], 1, 1))
        scores = self.rank_score(self.gru(encoding, mask=counts))[..., 0]
        scores = ops.cast(scores, "float32") / _TEMPERATURE
        if counts is not None:
            scores = ops.where(counts, scores, -1e9)
        return ops.softmax(scores, axis=-1)


def _rank_encoding(length: Any, width: int) -> Tensor:
    """Sines and cosines of the ranks 0 to length - 1, interleaved: float32 (length, width)."""
    frequency = ops.exp(ops.arange(0, width, 2, dtype="float32") * (-math.log(10000.0) / width))
    angle = ops.cast(ops.arange(length), "float32")[:, None] * frequency[None, :]
    pairs = ops.stack([ops.sin(angle), ops.cos(angle)], axis=-1)
    return ops.reshape(pairs, (-1, width))
