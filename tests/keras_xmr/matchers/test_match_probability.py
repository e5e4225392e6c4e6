"""The match probability against float64, where logits are far from 0 too."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from keras_xmr.matchers import MatchProbability


def _exact(images, captions, scale, shift):
    """Log-odds and their derivative by the logits, in float64."""
    gaps = images[:, :, None, None].astype(float) - captions[None, None].astype(float)
    logits = shift - scale * np.sqrt((gaps**2).sum(-1) + 1e-6)
    log_match, log_no_match = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    match, no_match = (scipy.special.logsumexp(x, axis=(1, 3)) for x in (log_match, log_no_match))
    both = log_match + log_no_match
    by_logit = [
        np.exp(both - total[:, None, :, None]).sum(axis=(1, 3)) for total in (match, no_match)
    ]
    return match - no_match, sum(by_logit)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [-300.0, -45.0, 3.0, 60.0])
def test_log_odds_and_gradients_are_exact_near_and_far(shift):
    random = np.random.default_rng(0)
    images = random.normal(size=(3, 4, 5)).astype(np.float32)
    captions = random.normal(size=(6, 2, 5)).astype(np.float32)
    matcher = MatchProbability(scale=2.0, shift=shift)
    with tf.GradientTape() as tape:
        odds = matcher.call({"samples": tf.constant(images)}, {"samples": tf.constant(captions)})
    by_shift = tape.jacobian(odds, matcher.shift.value)
    expected, expected_by_shift = _exact(images, captions, 2.0, shift)
    np.testing.assert_allclose(odds, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(by_shift, expected_by_shift, rtol=1e-5)


def test_pairs_of_one_batch_are_near_and_far_on_either_side():
    images = np.array([[[0.0], [0.1]], [[9.0], [9.1]]], np.float32)
    captions = np.array([[[0.0], [0.2]], [[9.0], [4.5]]], np.float32)
    odds = MatchProbability(scale=100.0, shift=90.0)({"samples": images}, {"samples": captions})
    expected, _ = _exact(images, captions, 100.0, 90.0)
    assert expected.min() < -40 < 40 < expected.max()
    np.testing.assert_allclose(odds, expected, rtol=2e-5)
