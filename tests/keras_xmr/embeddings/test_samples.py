"""Samples of Gaussian embeddings."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.embeddings.samples import sample, sample_with_common_noise

SEED = np.array([1, 2], np.int32)


@pytest.fixture
def gaussian(random):
    parts = {"mean": (3, 4), "log_variance": (3, 4)}
    return {key: random.normal(size=shape).astype(np.float32) for key, shape in parts.items()}


def test_samples_have_the_moments_of_the_gaussian(gaussian):
    count = 20_000
    drawn = np.asarray(sample(gaussian, count, SEED))
    assert drawn.shape == (3, count, 4)
    normal = (drawn - gaussian["mean"][:, None]) / np.exp(0.5 * gaussian["log_variance"])[:, None]
    # Five standard errors of a mean, of a standard deviation, and of a correlation.
    assert np.abs(normal.mean(axis=1)).max() < 5 / count**0.5
    assert np.abs(normal.std(axis=1) - 1).max() < 5 / (2 * count) ** 0.5
    numbers = normal.transpose(0, 2, 1).reshape(12, count)
    assert np.abs(np.corrcoef(numbers) - np.eye(12)).max() < 5 / count**0.5


@pytest.mark.parametrize("draw", [sample, sample_with_common_noise])
def test_a_traced_function_that_draws_is_freed(gaussian, draw):
    traced = tf.function(lambda embedding: draw(embedding, 5, SEED), autograph=False)
    graph = weakref.ref(traced.get_concrete_function(gaussian).graph)
    assert graph() is not None
    del traced
    gc.collect()
    assert graph() is None
