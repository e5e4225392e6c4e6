"""Pooling of a sequence by a bidirectional GRU."""

from __future__ import annotations

from typing import Any, Literal

import keras

from keras_xmr.config.contracts import PoolingContract
from keras_xmr.layers import GRU
from keras_xmr.pooling.base import Pooling


@keras.saving.register_keras_serializable(package="keras_xmr")
class BiGRU(Pooling):
    """The final states of a bidirectional GRU, D / 2 numbers a direction.

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
        self.forward_gru = GRU(dimension // 2, dtype=self.dtype_policy, name="forward")
        self.backward_gru = GRU(
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
    """The features (B, 1, F) of the last position that counts."""
    if mask is None:
        return features[:, -1:]
    last = keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1) - 1
    return keras.ops.take_along_axis(features, last[:, None, None], axis=1)
