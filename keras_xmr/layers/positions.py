"""Positions in sequences of different lengths."""

from __future__ import annotations

import math

from keras import ops

from keras_xmr.parts.tensors import Tensor


def ends(mask: Tensor) -> Tensor:
    """Finds the place behind the last token of each item by a mask (B, L): int32 (B,), 0 without.

    Padding may also stand before a token.
    """
    places = ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32")
    return ops.amax(ops.cast(mask, "int32") * places, axis=1)


def last_positions(mask: Tensor) -> Tensor:
    """Finds the last valid position of each item by a mask (B, L): int32 (B, 1), 0 without."""
    return ops.maximum(ends(mask) - 1, 0)[:, None]


def filled(ids: Tensor, length: int | None = None, pad: int | None = None) -> Tensor:
    """Ids (B, L), with -1 behind each caption, filled up with its last one.

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


def sine_positions(mask: Tensor, width: int) -> Tensor:
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
