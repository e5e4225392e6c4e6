"""Gradients against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def check(
    value: Callable[..., Any],
    inputs: list[np.ndarray],
    random: np.random.Generator,
    step: float = 1e-2,
    rtol: float = 2e-2,
) -> None:
    """Compares the slope of a scalar function along a random direction with its gradient."""
    points = [np.asarray(x, np.float64) for x in inputs]
    tensors = [tf.constant(x, tf.float32) for x in points]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = value(*tensors)
    gradients = tape.gradient(total, tensors, unconnected_gradients="zero")
    directions = [random.normal(size=x.shape) for x in points]

    def moved(by: float) -> float:
        there = [x + by * d for x, d in zip(points, directions, strict=True)]
        return float(value(*(tf.constant(x, tf.float32) for x in there)))

    slope = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose((moved(step) - moved(-step)) / (2 * step), slope, rtol=rtol)
