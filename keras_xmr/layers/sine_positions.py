"""Sine encoding of positions."""

from __future__ import annotations

import math
from typing import Any

from keras import ops


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
