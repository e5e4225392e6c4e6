"""GRUs over sequences of different lengths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import keras

from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import ArgumentError

_DISABLED = ContextVar("disable_packed_gru", default=False)


@contextmanager
def disable_packed_gru() -> Iterator[None]:
    """Traces the loops of Keras instead of packed ones, which ONNX cannot represent."""
    token = _DISABLED.set(True)
    try:
        yield
    finally:
        _DISABLED.reset(token)


@keras.saving.register_keras_serializable(package="keras_xmr", name="PackedGRU")
class PackedGRU(keras.layers.GRU):
    """`keras.layers.GRU`, with the same weights and outputs, and faster on a CPU with TensorFlow.

    There the padding of short sequences is not computed (docs/design.md has the times). On a GPU,
    compiled with XLA, within `disable_packed_gru`, or with another backend, it is Keras' own.
    """

    def inner_loop(
        self, sequences: Tensor, initial_state: object, mask: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns the last output (B, units), outputs (B, L, units) or (B, 1, units), the state."""
        lengths = [given.shape[1] for given in (sequences, mask) if given is not None]
        if None not in lengths and len(set(lengths)) > 1:
            raise ArgumentError(
                f"a mask has a number per position, and {lengths[0]} positions have a mask of "
                f"{lengths[1]}"
            )
        if self._packs():
            from keras_xmr.layers.packed_gru import can_pack, run_packed_gru

            if can_pack():
                return run_packed_gru(self, sequences, initial_state, mask)
        return super().inner_loop(sequences, initial_state, mask, training=training)

    def _packs(self) -> bool:
        standard = self.activation is keras.activations.tanh and self.use_bias and self.reset_after
        standard &= self.recurrent_activation is keras.activations.sigmoid
        has_dropout = self.dropout or self.recurrent_dropout
        on_tensorflow = keras.backend.backend() == "tensorflow"
        return standard and on_tensorflow and not has_dropout and not _DISABLED.get()


def bidirectional_gru(units: int, dtype: object, name: str) -> keras.layers.Bidirectional:
    """Makes the states (B, L, units) of a GRU, averaged over both directions."""
    forward = PackedGRU(units, return_sequences=True, dtype=dtype)
    return keras.layers.Bidirectional(forward, merge_mode="ave", dtype=dtype, name=name)
