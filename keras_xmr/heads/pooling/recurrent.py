"""Pooling of a sequence by a GRU, in one or both directions."""

from __future__ import annotations

from typing import Any, Literal

import keras

from data_pipelines.option_types import PositiveInt
from keras_xmr import layers
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers import GraphReasoning, L2Normalize, batch_normalization
from keras_xmr.layers.transformer import last_positions


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

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
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
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, **kwargs)
        if dimension % 2:
            raise ValueError(f"the two directions share the dimension, so it is even: {dimension}")
        self.final_state = final_state
        self.forward_gru = layers.GRU(dimension // 2, dtype=self.dtype_policy, name="forward")
        self.backward_gru = layers.GRU(
            dimension // 2,
            go_backwards=final_state == "both",
            dtype=self.dtype_policy,
            name="backward",
        )

    def call(self, features: Any, mask: Any = None) -> Any:
        forward = self.forward_gru(features, mask=mask)
        if self.final_state == "both":
            backward = self.backward_gru(features, mask=mask)
        else:
            backward = self.backward_gru(_last(features, mask))
        return keras.ops.concatenate([forward, backward], axis=-1)


def _last(features: Any, mask: Any) -> Any:
    """The features (B, 1, F) of the last valid position."""
    if mask is None:
        return features[:, -1:]
    return keras.ops.take_along_axis(features, last_positions(mask)[..., None], axis=1)


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
        self.linear = self.new_dense(dimension, "linear")
        # The square of a norm overflows half precision.
        self.normalize = L2Normalize(dtype="float32", name="normalize")
        self.reasoning = [
            GraphReasoning(dtype=policy, name=f"reasoning_{block}") for block in range(blocks)
        ]
        self.gru = GRU(dimension, batch_norm=True, dtype=policy, name="gru")

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        x = self.normalize(self.linear(features))
        for block in self.reasoning:
            x = block(x, mask=mask, training=training)
        return self.gru(self.normalize(x), mask=mask, training=training)
