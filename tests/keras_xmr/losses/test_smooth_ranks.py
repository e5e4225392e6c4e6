"""Smooth ranks in blocks of queries: the values and gradients of all comparisons."""

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


def graph(values: tf.Tensor, others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(values)
        found = smooth_asp(values, others, TEMPERATURE)
    return found, tape.gradient(found, values)


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
@pytest.mark.parametrize("at_once", [2**21, 3 * 200**2, 1])
@pytest.mark.parametrize("in_graph", [False, True])
def test_blocks_give_what_all_comparisons_give(random, monkeypatch, at_once, in_graph):
    monkeypatch.setattr(smooth_ranks, "_AT_ONCE", at_once)
    values, others = values_of(random, 7, 200)
    right, right_slopes = expected(values, others)
    function = ours
    if in_graph:
        # Of unknown size, as batches of a model are.
        unknown = tf.TensorSpec((None, None), tf.float32)
        function = tf.function(graph, input_signature=[unknown, unknown])
    found, slopes = map(np.asarray, function(values, others))
    np.testing.assert_allclose(found, right, rtol=1e-6)
    np.testing.assert_allclose(
        slopes, right_slopes, rtol=1e-4, atol=1e-5 * np.abs(right_slopes).max()
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e9])
def test_values_that_are_not_numbers_stay_visible(random, wrong):
    values, others = values_of(random, 2, 60)
    values[0, 5] = wrong
    found, _ = ours(values, others)
    assert np.isfinite(found[1])
    assert np.isfinite(found[0]) == np.isfinite(wrong)
