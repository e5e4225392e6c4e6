"""Samples of Gaussian embeddings."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.embeddings.kinds import as_distribution, sample, sample_with_common_noise

SEED = np.array([1, 2], np.int32)


@pytest.fixture
def gaussian(random):
    parts = {"mean": (3, 4), "log_variance": (3, 4)}
    return {key: random.normal(size=shape).astype(np.float32) for key, shape in parts.items()}


def test_samples_are_those_of_the_distribution(gaussian):
    expected = as_distribution(gaussian).sample(5, seed=SEED).numpy()
    np.testing.assert_allclose(sample(gaussian, 5, SEED), expected.swapaxes(0, 1), rtol=1e-6)


@pytest.mark.parametrize("draw", [sample, sample_with_common_noise])
def test_a_traced_function_that_draws_is_freed(gaussian, draw):
    traced = tf.function(lambda embedding: draw(embedding, 5, SEED), autograph=False)
    graph = weakref.ref(traced.get_concrete_function(gaussian).graph)
    assert graph() is not None
    del traced
    gc.collect()
    assert graph() is None
