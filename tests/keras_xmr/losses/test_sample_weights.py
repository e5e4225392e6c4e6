"""Weights of pairs of samples against derivatives of the loss (Chun et al. 2021, Eq. 5)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keras_xmr.losses.pcme import sample_weights


def sigmoid(logit):
    return 1 / (1 + math.exp(-logit))


def negative_log_likelihood(logits, match):
    """Eq. 1 and 2 of one pair of items, with logits of its pairs of samples."""
    probability = sum(map(sigmoid, logits)) / len(logits)
    return -math.log(probability if match else 1 - probability)


def test_weights_are_the_derivatives_of_the_loss(random):
    logits = random.normal(size=(3, 2, 4, 2), scale=2)
    matches = np.array([[True, False], [False, True]])
    weights = np.asarray(sample_weights(logits.astype(np.float32), matches), np.float64)
    np.testing.assert_allclose(weights.sum(axis=(0, 2)), 1, rtol=1e-5)
    step = 1e-5
    for image, caption in np.ndindex(2, 2):
        match = matches[image, caption]
        own = logits[:, image, :, caption].ravel()
        for place, weight in enumerate(weights[:, image, :, caption].ravel()):
            ends = []
            for sign in (1, -1):
                moved = own.copy()
                moved[place] += sign * step
                ends.append(negative_log_likelihood(moved, match))
            slope = (ends[0] - ends[1]) / (2 * step)
            chance = sigmoid(own[place])
            expected = -weight * (1 - chance) if match else weight * chance
            assert slope == pytest.approx(expected, rel=1e-3, abs=1e-7)


def test_near_samples_weigh_most_in_matches_and_far_ones_in_others():
    logits = np.array([-200.0, 0.0, 200.0], np.float32).reshape(3, 1, 1, 1)
    for match, expected in ((True, [0, 1 / 3, 2 / 3]), (False, [2 / 3, 1 / 3, 0])):
        weights = np.ravel(sample_weights(logits, np.array([[match]])))
        np.testing.assert_allclose(weights, expected, atol=1e-6)
