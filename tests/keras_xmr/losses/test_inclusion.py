"""The inclusion loss of ProLIP, against integrals and against what the released code computes."""

from __future__ import annotations

import gradients
import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import quad
from scipy.stats import norm

from keras_xmr.losses import Inclusion
from keras_xmr.losses.pcmepp import inclusion


def gaussians(random, count=5, dimension=4):
    return {
        "mean": random.normal(scale=0.5, size=(count, dimension)).astype(np.float32),
        "log_variance": random.normal(scale=0.8, size=(count, dimension)).astype(np.float32),
    }


def overlap(mean, deviation, other_mean, other_deviation):
    """log of the integral of p^2 q."""

    def product(x):
        return norm.pdf(x, mean, deviation) ** 2 * norm.pdf(x, other_mean, other_deviation)

    return np.log(quad(product, -15, 15, points=[mean, other_mean])[0])


@pytest.mark.slow
def test_inclusion_is_the_difference_of_two_integrals(random):
    inner, outer = gaussians(random, 1, 3), gaussians(random, 1, 3)
    found = np.asarray(inclusion(inner, outer))
    for place in np.ndindex(found.shape):
        p = inner["mean"][place], np.exp(0.5 * inner["log_variance"][place])
        q = outer["mean"][place], np.exp(0.5 * outer["log_variance"][place])
        assert found[place] == pytest.approx(overlap(*p, *q) - overlap(*q, *p), abs=1e-5)


def test_released_reading_is_what_the_released_code_computes(random):
    def overlap_of_code(one, two):
        v, w = (np.exp(-side["log_variance"] - 10.0) for side in (one, two))
        a = v + 0.5 * w
        b = 2 * one["mean"] * v + two["mean"] * w
        c = one["mean"] ** 2 * v + 0.5 * two["mean"] ** 2 * w
        before = -2 * one["log_variance"] - two["log_variance"]
        return before - 0.5 * np.log(a) + b**2 / 4 / a - c

    inner, outer = gaussians(random), gaussians(random)
    inner, outer = ({k: v.astype(np.float64) for k, v in side.items()} for side in (inner, outer))
    expected = overlap_of_code(inner, outer) - overlap_of_code(outer, inner)
    np.testing.assert_allclose(inclusion(inner, outer, "released"), expected, rtol=1e-6, atol=1e-9)


def test_each_caption_is_held_against_its_own_image(random):
    images, captions = gaussians(random, 3), gaussians(random, 5)
    image_ids = np.array([0, 0, 2, 1, 2])
    own = {key: value[image_ids] for key, value in images.items()}
    expected = np.logaddexp(0.0, -2.0 * np.asarray(inclusion(own, captions))).mean()
    found = Inclusion(scale=2.0).compute(images, captions, image_ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("reading", ["exact", "released"])
def test_it_widens_captions_narrows_images_and_stays_finite(reading):
    mean = tf.zeros((2, 3))
    for apart in (0.0, 30.0, -30.0):
        logs = tf.Variable([tf.zeros((2, 3)), tf.fill((2, 3), apart)])
        with tf.GradientTape() as tape:
            sides = [{"mean": mean + i, "log_variance": logs[i]} for i in range(2)]
            value = Inclusion(reading=reading, scale=1.0).compute(*sides)
        gradient = tape.gradient(value, logs)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        if apart == 0.0:
            assert float(value) == pytest.approx(np.log(2.0), rel=1e-6)
            assert (gradient[0].numpy() > 0).all()
            assert (gradient[1].numpy() < 0).all()


def test_gradients_equal_central_differences(random):
    def value(mean, log_variance, other, log_other):
        inner = {"mean": mean, "log_variance": log_variance}
        return tf.reduce_sum(
            inclusion(inner, {"mean": other, "log_variance": log_other})
            * tf.constant([1.0, -2.0, 0.5])
        )

    gradients.check(value, [random.normal(size=(4, 3)) for _ in range(4)], random)
