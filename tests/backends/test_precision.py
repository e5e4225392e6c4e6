"""Embeddings of float64 stay in float64, with any backend; docs/tables/matrix.csv has all parts."""

from __future__ import annotations

import backend_matrix
import every_part
import keras
import numpy as np
import pytest

from keras_xmr import losses, matchers
from keras_xmr.embeddings import distances
from keras_xmr.layers.operations import ops

FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "logaddexp": lambda x: np.logaddexp(x, x),
    "mean": np.mean,
    "rsqrt": lambda x: x**-0.5,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_keep_float64(random, name):
    numbers = random.uniform(0.1, 2.0, size=5)
    with backend_matrix.enable_float64():
        given = backend_matrix.tensors(numbers, "float64")
        function = getattr(ops, name)
        found = function(given, given) if name == "logaddexp" else function(given)
        np.testing.assert_allclose(
            backend_matrix.array(found), FUNCTIONS[name](numbers), rtol=1e-14
        )


@pytest.mark.skipif(backend_matrix.BACKEND == "jax", reason="JAX compiles each operation of a call")
@pytest.mark.parametrize("name", ["NAAF", "SAF"])
def test_statistics_of_float64_are_kept_in_training(random, name):
    image, caption = every_part.sides(every_part.MATCHERS[name], random)
    matcher = getattr(matchers, name)()
    before = [backend_matrix.array(one).copy() for one in matcher.non_trainable_variables]
    sides = [
        {"tokens": backend_matrix.tensors(side["tokens"], "float64"), "mask": side["mask"] > 0}
        for side in (image, caption)
    ]
    value = losses.InfoNCE()(*sides, every_part.IMAGE_IDS, matcher=matcher, training=True)
    assert keras.backend.standardize_dtype(value.dtype) == "float64"
    after = [backend_matrix.array(one) for one in matcher.non_trainable_variables[: len(before)]]
    assert any(not np.array_equal(*pair) for pair in zip(before, after, strict=True))
    assert all(np.isfinite(one).all() for one in after)


def _log_odds(left, right):
    numbers = (ops.ones_like(left[0, 0]) * one for one in (1.5, 0.5))
    return distances.euclidean_logits(left, right, *numbers)


def _soft_contrastive(left, right):
    return losses.SoftContrastive().of_scores(_log_odds(left, right))


GRADIENTS = {
    "cosine": distances.cosine,
    "euclidean": distances.euclidean,
    "log_odds": _log_odds,
    "soft_contrastive": _soft_contrastive,
}


@pytest.mark.skipif(
    backend_matrix.BACKEND != "torch", reason="gradients of their own are PyTorch's"
)
@pytest.mark.parametrize("name", GRADIENTS)
def test_first_and_second_gradients_of_scores_are_exact(name):
    import torch

    numbers = torch.Generator().manual_seed(0)
    sides = [
        torch.randn(rows, 5, dtype=torch.float64, generator=numbers, requires_grad=True)
        for rows in (4, 4 if name == "soft_contrastive" else 3)
    ]
    assert torch.autograd.gradcheck(GRADIENTS[name], sides)
    assert torch.autograd.gradgradcheck(GRADIENTS[name], sides)
    numbers_of_scale = [torch.tensor(one, dtype=torch.float64) for one in (1.5, 0.5)]
    given = [one.requires_grad_() for one in (*sides, *numbers_of_scale)]
    assert torch.autograd.gradcheck(distances.euclidean_logits, given)


@pytest.mark.skipif(
    backend_matrix.BACKEND != "tensorflow", reason="a gradient of its own is TensorFlow's"
)
def test_first_and_second_gradients_of_distances_are_exact(random):
    import tensorflow as tf

    points, way = random.normal(size=(2, 7, 5))

    def slope(points, way):
        with tf.GradientTape() as tape:
            tape.watch(points)
            value = tf.reduce_sum(distances.euclidean(points[:4], points[4:]) ** 3)
        return tf.reduce_sum(tape.gradient(value, points) * way)

    def moved(by, function):
        return function(tf.constant(points + by * way), tf.constant(way)).numpy()

    def value(points, _):
        return tf.reduce_sum(distances.euclidean(points[:4], points[4:]) ** 3)

    def curvature(points, way):
        with tf.GradientTape() as tape:
            tape.watch(points)
            first = slope(points, way)
        return tf.reduce_sum(tape.gradient(first, points) * way)

    for function, derivative in ((value, slope), (slope, curvature)):
        by_hand = (moved(1e-5, function) - moved(-1e-5, function)) / 2e-5
        np.testing.assert_allclose(moved(0.0, derivative), by_hand, rtol=1e-6)
