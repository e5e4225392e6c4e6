"""The loss of ProbVLM, against SciPy's generalised Gaussian."""

from __future__ import annotations

import gradients
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import gennorm

from keras_xmr.heads.posthoc import log_variance
from keras_xmr.losses import GeneralizedGaussianLikelihood
from keras_xmr.losses.probvlm import negative_log_likelihood

IMAGE_IDS = np.array([0, 0, 2, 1, 2])


def adapted(random, count):
    draw = random.normal(size=(4, count, 3))
    parts = {"mean": draw[0], "reconstruction": draw[1], "log_scale": 0.5 * draw[2]}
    parts |= {"log_shape": 0.4 * draw[3], "log_variance": draw[0]}
    return {name: part.astype(np.float32) for name, part in parts.items()}


def test_likelihood_is_that_of_a_generalised_gaussian(random):
    residuals, log_scale, log_shape = np.abs(random.normal(size=(3, 20, 2))).astype(np.float32)
    log_shape -= 0.7
    found = negative_log_likelihood(residuals, log_scale, log_shape)
    expected = gennorm.logpdf(residuals, np.exp(log_shape), scale=np.exp(log_scale))
    np.testing.assert_allclose(found, -expected - np.log(2.0), rtol=1e-4, atol=1e-5)


def test_variance_is_that_of_a_generalised_gaussian(random):
    log_scale, log_shape = random.normal(scale=0.5, size=(2, 20)).astype(np.float32)
    expected = gennorm.var(np.exp(log_shape), scale=np.exp(log_scale))
    np.testing.assert_allclose(log_variance(log_scale, log_shape), np.log(expected), atol=1e-4)


def oracle(image, caption, absolute, likelihood, cross):
    """The parts of the loss, pair by pair."""

    def of(item, number, target):
        residual = np.abs(item["reconstruction"][number] - target).astype(np.float64)
        alpha, beta = (np.exp(item[key][number]) for key in ("log_scale", "log_shape"))
        density = gennorm.logpdf(residual, beta, scale=alpha) + np.log(2.0)
        return np.mean(absolute * residual - likelihood * density)

    def own(item):
        return np.mean([of(item, n, mean) for n, mean in enumerate(item["mean"])])

    to_captions = [
        np.mean([of(image, i, caption["mean"][c]) for c in np.flatnonzero(i == IMAGE_IDS)])
        for i in range(3)
    ]
    to_images = [of(caption, c, image["mean"][i]) for c, i in enumerate(IMAGE_IDS)]
    crossed = cross * (np.mean(to_captions) + np.mean(to_images))
    return {"image": own(image), "caption": own(caption), "cross": crossed}


def test_parts_are_those_of_a_slow_reading(random):
    weights = {"absolute": 0.7, "likelihood": 0.3, "cross": 0.5}
    image, caption = adapted(random, 3), adapted(random, 5)
    positives = np.arange(3)[:, None] == IMAGE_IDS
    found = GeneralizedGaussianLikelihood(**weights)(
        tf.zeros((3, 5)), image, caption, {"positives": tf.constant(positives)}
    )
    expected = oracle(image, caption, **weights)
    assert {name: float(part) for name, part in found.items()} == pytest.approx(expected, rel=1e-4)


def test_a_side_of_points_has_no_distribution_and_is_still_a_target(random):
    loss, caption = GeneralizedGaussianLikelihood(cross=0.5), adapted(random, 5)
    image = {"mean": adapted(random, 3)["mean"]}
    with tf.GradientTape() as tape:
        reconstruction = tf.Variable(caption["reconstruction"])
        value = loss.compute(image, caption | {"reconstruction": reconstruction}, IMAGE_IDS)
    assert np.abs(tape.gradient(value, reconstruction)).max() > 0


def test_gradients_equal_central_differences_and_are_finite_at_the_target(random):
    def value(reconstruction, log_scale, log_shape):
        parts = {"reconstruction": reconstruction, "log_scale": log_scale, "log_shape": log_shape}
        caption = parts | {"mean": tf.ones((4, 3)), "log_variance": tf.zeros((4, 3))}
        return GeneralizedGaussianLikelihood(likelihood=1.0).compute(tf.ones((4, 3)), caption)

    inputs = [random.normal(size=(4, 3)) - 2.0, *random.normal(scale=0.3, size=(2, 4, 3))]
    gradients.check(value, inputs, random, step=1e-3)
    at_target = [tf.Variable(tf.ones((4, 3))), *(tf.Variable(tf.zeros((4, 3))) for _ in range(2))]
    with tf.GradientTape() as tape:
        there = value(*at_target)
    assert all(np.isfinite(g).all() for g in tape.gradient(there, at_target))
