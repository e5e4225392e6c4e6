"""Distributions of Gaussian embeddings, against the closed forms of losses and matchers."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec

import keras
import numpy as np
import pytest

from keras_xmr import heads, losses
from keras_xmr.embeddings import distances, distribution, log_sigma, sample
from keras_xmr.heads import pooling as poolings
from keras_xmr.utils.errors import ArgumentError

BACKEND = keras.backend.backend()
PACKAGES = {
    "tensorflow": "tensorflow_probability.python",
    "torch": "torch",
    "jax": "tensorflow_probability.substrates.jax",
}
RANDOM = np.random.default_rng(5)
GIVEN = {
    "mean": RANDOM.normal(size=(4, 6)).astype(np.float32),
    "log_variance": RANDOM.normal(size=(4, 6)).astype(np.float32),
}
OTHER = {key: value[::-1].copy() for key, value in GIVEN.items()}
PRIOR = {key: np.zeros_like(value) for key, value in GIVEN.items()}


@pytest.fixture(autouse=True)
def _with_tensorflow_probability(monkeypatch):
    """JAX has distributions by it, without TensorFlow; other tests do without it."""
    if BACKEND == "jax":
        monkeypatch.delitem(sys.modules, "tensorflow_probability", raising=False)
        if find_spec("tensorflow_probability") is None:
            pytest.skip("TensorFlow Probability is not installed")


def numbers(tensor):
    return keras.ops.convert_to_numpy(tensor)


def kl(left, right):
    if BACKEND == "torch":
        from torch.distributions import kl_divergence

        return numbers(kl_divergence(left, right))
    return numbers(left.kl_divergence(right))


def draw(here):
    if BACKEND == "jax":
        import jax

        return here.sample(4000, seed=jax.random.PRNGKey(0))
    return here.sample((4000,))


def test_closed_forms_are_those_of_the_distribution():
    here = distribution(GIVEN)
    assert type(here).__module__.startswith(PACKAGES[BACKEND])
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
        draw(here),
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
    np.testing.assert_allclose(numbers(here.mean if BACKEND == "torch" else here.mean()),
                               numbers(embedding["mean"]), rtol=1e-5)  # fmt: skip


def test_other_embeddings_have_none():
    with pytest.raises(ArgumentError, match=r"of a Gaussian embedding.* this is a point"):
        distribution({"mean": GIVEN["mean"]})
