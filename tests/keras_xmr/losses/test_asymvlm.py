"""The loss of AsymVLM, against integrals and Bessel functions."""

from __future__ import annotations

import gradients
import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import quad
from scipy.special import ive, logsumexp

from keras_xmr.losses import SphericalLikelihood
from keras_xmr.losses.cross_entropy import power_spherical_normalizer, von_mises_fisher_normalizer

KAPPA = np.array([0.5, 3.0, 20.0, 90.0], np.float32)
IMAGE_IDS = np.array([0, 0, 2, 1])


def log_normalizer(kappa, dimension):
    """Of power spherical densities, by the integral over the cosine, but for a constant."""

    def density(t):
        return np.exp(kappa * (np.log1p(t) - np.log(2.0))) * (1 - t * t) ** ((dimension - 3) / 2)

    return -np.log(quad(density, -1, 1, epsabs=0, limit=200)[0]) - kappa * np.log(2.0)


@pytest.mark.parametrize("dimension", [5, 64])
def test_power_spherical_normalizer_is_that_of_the_integral(dimension):
    found = np.asarray(power_spherical_normalizer(KAPPA, dimension))
    expected = np.array([log_normalizer(float(kappa), dimension) for kappa in KAPPA])
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dimension", [32, 128])
def test_slope_of_the_von_mises_fisher_normalizer_is_a_ratio_of_bessel_functions(dimension):
    kappa = tf.Variable(KAPPA)
    with tf.GradientTape() as tape:
        value = von_mises_fisher_normalizer(kappa, dimension)
    order = dimension / 2
    expected = -ive(order, KAPPA.astype(float)) / ive(order - 1, KAPPA.astype(float))
    np.testing.assert_allclose(tape.gradient(value, kappa), expected, rtol=0.02)


def captions(random, dimension=5):
    mean = random.normal(size=(4, dimension)).astype(np.float32)
    return {"mean": mean, "log_variance": np.tile(-np.log(KAPPA)[:, None], (1, dimension))}


def oracle(images, caption):
    """Cross entropies of a match against all that do not, mean of a query, then over queries."""
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, caption["mean"])]
    cosine = (units[0] @ units[1].T).astype(np.float64)
    own = np.array([log_normalizer(float(kappa), images.shape[1]) for kappa in KAPPA])
    likelihood, right = KAPPA * np.log1p(cosine) + own, np.arange(3)[:, None] == IMAGE_IDS
    total = 0.0
    for scores, matches in ((likelihood, right), (likelihood.T, right.T)):
        means = []
        for row, match in zip(scores, matches, strict=True):
            each = [logsumexp(np.append(row[~match], score)) - score for score in row[match]]
            means.append(np.mean(each))
        total += 0.5 * np.mean(means)
    return total


def test_value_is_that_of_a_slow_reading(random):
    images, caption = random.normal(size=(3, 5)).astype(np.float32), captions(random)
    found = SphericalLikelihood(learnable=False).compute(images, caption, IMAGE_IDS)
    assert float(found) == pytest.approx(oracle(images, caption), rel=1e-3)


def test_an_ambiguous_caption_becomes_less_concentrated():
    """The first caption lies between two images of which one is right, the second at its own."""
    images = np.eye(3, dtype=np.float32)
    between = np.array([[1, 1, 0.2], [0, 1, 0], [0, 0, 1]], np.float32)
    logs = tf.Variable(np.full((3, 3), -np.log(8.0), np.float32))
    with tf.GradientTape() as tape:
        value = SphericalLikelihood().compute(images, {"mean": between, "log_variance": logs})
    slopes = tape.gradient(value, logs).numpy().sum(axis=1)
    assert slopes[0] < slopes[1]


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["von_mises_fisher", "power_spherical"])
def test_gradients_equal_central_differences_and_are_finite_far_away(random, distribution):
    loss = SphericalLikelihood(distribution=distribution)

    def value(image, mean, log_variance):
        return loss.compute(image, {"mean": mean, "log_variance": log_variance}, IMAGE_IDS)

    inputs = [random.normal(size=(count, 5)) for count in (3, 4, 4)]
    inputs[2] -= 2.0
    gradients.check(value, inputs, random)
    far = [tf.Variable(tf.fill((count, 5), sign)) for count, sign in ((3, -1.0), (4, 1.0))]
    far.append(tf.Variable(tf.fill((4, 5), -9.0)))
    with tf.GradientTape() as tape:
        there = value(*far)
    assert np.isfinite(there)
    assert all(np.isfinite(g).all() for g in tape.gradient(there, far))
