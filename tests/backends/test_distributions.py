"""Distributions of Gaussian embeddings, against the closed forms of losses and matchers."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from keras_xmr import heads, losses
from keras_xmr.embeddings import distances, distribution, log_sigma, sample
from keras_xmr.heads import pooling as poolings
from keras_xmr.utils.errors import ArgumentError

BACKEND = keras.backend.backend()
RANDOM = np.random.default_rng(5)
GIVEN = {
    "mean": RANDOM.normal(size=(4, 6)).astype(np.float32),
    "log_variance": RANDOM.normal(size=(4, 6)).astype(np.float32),
}
OTHER = {key: value[::-1].copy() for key, value in GIVEN.items()}
PRIOR = {key: np.zeros_like(value) for key, value in GIVEN.items()}


@pytest.fixture(autouse=True)
def _without_jax():
    if BACKEND == "jax":
        pytest.skip("needs TensorFlow Probability, which is blocked here: see test_with_jax")


def numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


def kl(left, right):
    if BACKEND == "torch":
        from torch.distributions import kl_divergence

        return numbers(kl_divergence(left, right))
    return numbers(left.kl_divergence(right))


def test_closed_forms_are_those_of_the_distribution():
    here = distribution(GIVEN)
    assert tuple(here.batch_shape) == (4,)
    assert tuple(here.event_shape) == (6,)
    tensors = [{k: keras.ops.convert_to_tensor(v) for k, v in e.items()} for e in (GIVEN, OTHER)]
    loss = losses.KLDivergence(reduction="mean").items_loss(tensors[0])
    np.testing.assert_allclose(numbers(loss), kl(here, distribution(PRIOR)).mean(), rtol=1e-4)
    pairs = numbers(distances.kl_divergence(*tensors))
    np.testing.assert_allclose(np.diag(pairs), kl(here, distribution(OTHER)), rtol=1e-4, atol=1e-4)
    # The uncertainty of an item is its entropy, scaled and shifted.
    entropy = 6 * (numbers(log_sigma(tensors[0])) + 0.5 * math.log(2 * math.pi * math.e))
    np.testing.assert_allclose(numbers(here.entropy()), entropy, rtol=1e-4)


def test_log_probability_and_samples():
    here = distribution(GIVEN)
    variance = np.exp(GIVEN["log_variance"])
    terms = (OTHER["mean"] - GIVEN["mean"]) ** 2 / variance + np.log(2 * np.pi * variance)
    found = here.log_prob(keras.ops.convert_to_tensor(OTHER["mean"]))
    np.testing.assert_allclose(numbers(found), -0.5 * terms.sum(axis=1), rtol=1e-4)
    for drawn in (
        here.sample((4000,)),
        keras.ops.transpose(
            sample({k: keras.ops.convert_to_tensor(v) for k, v in GIVEN.items()}, 4000, 3),
            (1, 0, 2),
        ),
    ):
        np.testing.assert_allclose(numbers(drawn).mean(axis=0), GIVEN["mean"], atol=0.25)
        np.testing.assert_allclose(numbers(drawn).var(axis=0), variance, rtol=0.15)


def test_a_head_gives_a_distribution():
    head = heads.Gaussian(8, lambda: poolings.Mean(8))
    embedding = head(RANDOM.normal(size=(3, 5, 6)).astype(np.float32))
    here = distribution(embedding)
    np.testing.assert_allclose(numbers(here.mean() if BACKEND == "tensorflow" else here.mean),
                               numbers(embedding["mean"]), rtol=1e-5)  # fmt: skip


def test_other_embeddings_have_none():
    with pytest.raises(ArgumentError, match=r"of a Gaussian embedding.* this is a point"):
        distribution({"mean": GIVEN["mean"]})
