"""A block of a transformer that normalises before each of its halves."""

from __future__ import annotations

import math
from typing import Any, Literal

from keras import ops

from keras_xmr.layers.part import RecordedLayer

Activation = Literal["gelu", "quick_gelu"]


class TransformerBlock(RecordedLayer):
    """Self-attention, then a hidden layer, each with a residual connection.

    Both normalise their inputs by a LayerNorm, as the vision transformers of CLIP do. Every
    position attends to every other.

    Args:
        heads: Heads of the attention; they divide the width.
        hidden: Width of the hidden layer.
        activation: "gelu", exact, or "quick_gelu", x sigmoid(1.702 x).
        epsilon: Of the LayerNorms.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        heads: int,
        hidden: int,
        *,
        activation: Activation = "gelu",
        epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.hidden = hidden
        self.activation = activation
        self.attention_norm = self.new_norm("attention_norm", epsilon, self.dtype_policy)
        self.hidden_norm = self.new_norm("hidden_norm", epsilon, self.dtype_policy)
        self.hidden_linear = self.new_dense(hidden, "hidden_linear")

    def build(self, shape: tuple[Any, ...]) -> None:
        width = shape[-1]
        self.queries_keys_values = self.new_dense(3 * width, "queries_keys_values")
        self.attention_linear = self.new_dense(width, "attention_linear")
        self.output_linear = self.new_dense(width, "output_linear")
        for layer in (self.attention_norm, self.queries_keys_values, self.attention_linear):
            layer.build(shape)
        self.hidden_norm.build(shape)
        self.hidden_linear.build(shape)
        self.output_linear.build((*shape[:-1], self.hidden))

    def call(self, features: Any) -> Any:
        """Features (B, L, F) to features of the same shape."""
        features = features + self._attended(self.attention_norm(features))
        hidden = self.hidden_linear(self.hidden_norm(features))
        return features + self.output_linear(activate(hidden, self.activation))

    def _attended(self, features: Any) -> Any:
        length, width = ops.shape(features)[1], features.shape[-1]
        mixed = self.queries_keys_values(features)
        split = ops.reshape(mixed, (-1, length, 3, self.heads, width // self.heads))
        attended = ops.dot_product_attention(split[:, :, 0], split[:, :, 1], split[:, :, 2])
        return self.attention_linear(ops.reshape(attended, (-1, length, width)))


def activate(hidden: Any, activation: Activation) -> Any:
    """The activation of a hidden layer; see `TransformerBlock`."""
    if activation == "gelu":
        return ops.gelu(hidden, approximate=False)
    return hidden * ops.sigmoid(1.702 * hidden)


def last_positions(mask: Any) -> Any:
    """The last valid position of each item, int32 (B, 1), by a mask (B, L); 0 without any."""
    return ops.maximum(ops.sum(ops.cast(mask, "int32"), axis=1) - 1, 0)[:, None]


def filled(ids: Any, length: int | None = None, pad: int | None = None) -> Any:
    """Ids (B, L), with -1 behind each caption, filled up with the last one of each.

    Args:
        ids: The ids.
        length: Number of ids of the output, (B, length); None for L.
        pad: The id that takes the place of the last one; None for none.
    """
    known = ids >= 0
    end = ops.maximum(ops.take_along_axis(ids, last_positions(known), axis=1), 0)
    end = end if pad is None else ops.full_like(end, pad)
    ids = ops.where(known, ids, end)
    if length is None:
        return ids
    return ops.concatenate([ids, ops.tile(end, (1, length))], axis=1)[:, :length]


def sine_positions(mask: Any, width: int) -> Any:
    """Sines (even numbers) and cosines (odd ones) of positions, float32 (B, L, width).

    Vaswani et al. 2017, section 3.5, with positions scaled so that the last valid one is at
    2 pi, as the released code of Kim et al. 2023 has them. Padding changes nothing.

    Args:
        mask: Valid positions, boolean (B, L).
        width: Numbers per position.
    """
    places = ops.cumsum(ops.cast(mask, "float32"), axis=1)
    angles = 2.0 * math.pi * places / ops.maximum(places[:, -1:], 1.0)
    numbers = ops.arange(width)
    rates = 10000.0 ** (ops.cast(2 * (numbers // 2), "float32") / width)
    angles = angles[..., None] / rates
    return ops.where(numbers % 2 == 0, ops.sin(angles), ops.cos(angles))
