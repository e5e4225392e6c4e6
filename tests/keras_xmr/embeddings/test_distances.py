"""Distances between Gaussians; tests/backends compares them with reference numbers."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr import matchers
from keras_xmr.embeddings import distances


@pytest.fixture
def gaussians(random):
    def make(count):
        mean = random.normal(size=(count, 40)).astype(np.float32)
        log_variance = random.normal(size=(count, 40)).astype(np.float32)
        return {"mean": mean, "log_variance": log_variance}

    return make(6), make(8)


def test_bhattacharyya_of_equal_gaussians_is_zero_and_symmetric(gaussians):
    left, right = gaussians
    own = distances.bhattacharyya(left, left)
    np.testing.assert_allclose(np.diag(own), 0, atol=1e-4)
    there = distances.bhattacharyya(left, right)
    back = distances.bhattacharyya(right, left)
    np.testing.assert_allclose(there, np.transpose(back), rtol=1e-4)


def test_squared_euclidean_keeps_its_digits_far_from_the_origin(random):
    left = random.normal(size=(5, 16)).astype(np.float32)
    right = random.normal(size=(6, 16)).astype(np.float32)
    expected = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(-1)
    moved = distances.squared_euclidean(left + 300.0, right + 300.0)
    np.testing.assert_allclose(moved, expected, rtol=1e-3)
    assert np.asarray(distances.squared_euclidean(left, left)).min() >= 0


def test_jensen_shannon_lies_between_zero_and_log_two(gaussians):
    matcher = matchers.JensenShannon(test_samples=500)
    left, right = gaussians
    near = {"mean": left["mean"] + 0.05, "log_variance": left["log_variance"]}
    image = matcher.prepare(left, "image")
    far = np.log(2) - np.exp(matcher(image, matcher.prepare(right, "text")))
    close = np.log(2) - np.exp(np.diag(matcher(image, matcher.prepare(near, "text"))))
    assert far.min() > 0.5
    assert far.max() <= np.log(2) + 1e-5
    assert 0 < close.max() < 0.2


def test_jensen_shannon_equals_the_plain_estimate(gaussians):
    matcher = matchers.JensenShannon(test_samples=7)
    sides = zip(("image", "text"), gaussians, strict=True)
    pair = [matcher.prepare(own | {"mean": 0.1 * own["mean"]}, side) for side, own in sides]
    left, right = [{k: np.asarray(v, np.float64) for k, v in own.items()} for own in pair]

    def to_mixture(one, other):
        def density(of, x):
            terms = (x - of["mean"]) ** 2 / np.exp(of["log_variance"]) + of["log_variance"]
            return np.exp(-0.5 * terms.sum(-1))

        own, theirs = (density(of, one["samples"][:, None]) for of in (one, other))
        return np.log(own / (0.5 * own + 0.5 * theirs)).mean()

    def item(of, number):
        return {"mean": of["mean"][number], "log_variance": of["log_variance"][number],
                "samples": of["samples"][number]}  # fmt: skip

    expected = [
        [
            0.5
            * (
                to_mixture(item(left, i), item(right, c))
                + to_mixture(item(right, c), item(left, i))
            )
            for c in range(len(right["mean"]))
        ]
        for i in range(len(left["mean"]))
    ]
    found = np.log(2) - np.exp(np.asarray(matcher(*pair), np.float64))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_jensen_shannon_tells_far_gaussians_apart(random):
    """At the variances of a trained PCME, JS is log 2 in float32 for all pairs."""
    mean = random.normal(size=(40, 64)).astype(np.float32)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    log_variance = np.full_like(mean, -8.0)
    matcher = matchers.JensenShannon()
    near = mean + 0.05 * random.normal(size=mean.shape).astype(np.float32)
    pair = [
        matcher.prepare({"mean": m, "log_variance": log_variance}, side)
        for side, m in (("image", mean), ("text", near))
    ]
    scores = np.asarray(matcher(*pair))
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 0.99 * scores.size
    symmetric = np.asarray(matchers.SymmetricKL()(*pair))
    assert (scores.argmax(axis=1) == np.arange(40)).mean() > 0.9
    assert (symmetric.argmax(axis=1) == np.arange(40)).mean() > 0.9


def test_symmetric_kl_ranks_as_the_released_js(golden):
    case = golden("distances")
    left = {"mean": case.f32("in_mu1"), "log_variance": 2 * case.f32("in_logsigma1")}
    right = {"mean": case.f32("in_mu2"), "log_variance": 2 * case.f32("in_logsigma2")}
    scores = np.asarray(matchers.SymmetricKL()(left, right))
    released = case["out_code_sim_js"]
    dimension = left["mean"].shape[1]
    np.testing.assert_allclose(4 * scores - 2 * dimension, released, rtol=1e-4)
