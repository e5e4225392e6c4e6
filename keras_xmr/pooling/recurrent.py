"""Pooling of a sequence by a GRU, in one or both directions."""

from __future__ import annotations

from typing import Any, Literal

import keras

from keras_xmr import layers
from keras_xmr.config.contracts import PoolingContract
from keras_xmr.layers import batch_normalization
from keras_xmr.pooling.base import Pooling


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

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.forward_gru.build(features_shape)
        self.backward_gru.build(features_shape)

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
    last = keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1) - 1
    return keras.ops.take_along_axis(features, last[:, None, None], axis=1)
