"""Smooth ranks by way of a grid: what all comparisons give, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.losses import smooth_ranks
from keras_xmr.losses.smooth_ranks import smooth_asp

TEMPERATURE = 0.01


def values_of(random, queries: int, candidates: int) -> tuple[np.ndarray, np.ndarray]:
    """Similarities, of which two are equal, and ranks to compare theirs with."""
    values = random.normal(scale=0.02, size=(queries, candidates)).astype(np.float32)
    values[:, 1] = values[:, 0]
    return values, (1 + random.random(values.shape) * candidates).astype(np.float32)


def ours(values: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The precision of each query, and the gradient by the similarities."""
    variable = tf.Variable(values)
    with tf.GradientTape() as tape:
        found = smooth_asp(variable, others, TEMPERATURE)
    return found.numpy(), tape.gradient(found, variable).numpy()


def expected(values: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both, with all comparisons, in double precision."""
    variable = tf.Variable(values.astype(np.float64))
    with tf.GradientTape() as tape:
        scaled = variable / TEMPERATURE
        ranks = 0.5 + tf.reduce_sum(tf.sigmoid(scaled[:, None, :] - scaled[:, :, None]), axis=2)
        others = others.astype(np.float64)
        found = tf.reduce_mean(tf.minimum(ranks, others) / tf.maximum(ranks, others), axis=1)
    return found.numpy(), tape.gradient(found, variable).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [2**20, 2**13])
def test_the_grid_gives_what_all_comparisons_give(random, monkeypatch, at_once):
    monkeypatch.setattr(smooth_ranks, "_AT_ONCE", at_once)  # In one block, and in blocks of 3.
    monkeypatch.setattr(smooth_ranks, "_one_by_one", None)
    values, others = values_of(random, 7, 200)
    (found, slopes), (right, right_slopes) = ours(values, others), expected(values, others)
    np.testing.assert_allclose(found, right, rtol=1e-6)
    np.testing.assert_allclose(
        slopes, right_slopes, rtol=1e-4, atol=1e-5 * np.abs(right_slopes).max()
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e9])
def test_what_no_grid_could_hold_is_compared_one_by_one(random, monkeypatch, wrong):
    monkeypatch.setattr(smooth_ranks, "_precision_on_grid", None)
    values, others = values_of(random, 2, 60)
    values[0, 5] = wrong
    found, _ = ours(values, others)
    assert np.isfinite(found[1])
    assert np.isfinite(found[0]) == np.isfinite(wrong)
