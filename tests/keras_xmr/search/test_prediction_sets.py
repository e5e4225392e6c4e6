"""The promise of prediction sets, held against data that calibrated nothing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from keras_xmr.search.prediction_sets import (
    calibrate,
    group_weights,
    low_quantile,
    standardise,
)


def draw(random, photos=60, captions=3, answers=1, extra=0):
    """Scores (queries, photos + extra), which are right, and groups; captions of one photo share
    how hard it is."""
    groups = np.repeat(np.arange(photos), captions)
    scores = random.normal(size=(len(groups), photos + extra))
    right = np.zeros(scores.shape, bool)
    hard = random.normal(size=photos)[groups]
    for more in range(answers):
        right[np.arange(len(groups)), (groups + more) % photos] = True
    scores[right] += (2 + 2 * hard).repeat(answers)
    return scores, right, groups


def covered(found, scores, right):
    """For each query, whether the promised share of its right photos is in its set."""
    inside = ((scores >= found.cutoff) & right).sum(axis=1)
    return inside >= found.share * right.sum(axis=1) - 1e-9


def holds(shares, trials, promised):
    """Whether a promise lies in the binomial interval of what was counted, or below it."""
    counted = round(float(np.sum(shares)))
    return scipy.stats.binomtest(counted, trials, promised, "less").pvalue > 0.01


@pytest.mark.parametrize("answers", [1, 5])
@pytest.mark.parametrize("extra", [0, 600])
def test_the_promised_share_is_in_the_set_whatever_the_gallery(answers, extra, random):
    kept = []
    for _ in range(150):
        found = calibrate(*draw(random, answers=answers))
        scores, right, _ = draw(random, photos=20, captions=1, answers=answers, extra=extra)
        kept.append(covered(found, scores, right)[0])
    assert holds(kept, len(kept), 0.9), np.mean(kept)
    # It is no more careful than it has to be.
    assert np.mean(kept) < 0.985


def test_captions_of_one_photo_count_as_one():
    weights = group_weights(np.array([4, 4, 4, 9]))
    np.testing.assert_allclose(weights, [1 / 9, 1 / 9, 1 / 9, 1 / 3])


def test_the_quantile_is_that_of_split_conformal_prediction():
    values = np.random.default_rng(0).permutation(19).astype(float)
    weights = group_weights(np.arange(19))
    # floor(0.1 * 20) = 2: the second smallest.
    assert low_quantile(values, weights, 0.1) == 1.0
    # Eight cannot promise 9 of 10.
    assert low_quantile(values[:8], group_weights(np.arange(8)), 0.1) == -np.inf


def test_the_share_counts_right_photos():
    """Of five right photos four have to be in the set."""
    scores = np.tile([9.0, 8.0, 7.0, 6.0, 1.0, 0.0], (20, 1))
    right = np.tile([True] * 5 + [False], (20, 1))
    found = calibrate(scores, right, np.arange(20))
    assert found.cutoff == 6.0


def test_queries_without_an_answer_are_left_out(random):
    scores, right, groups = draw(random)
    right[:30] = False
    assert calibrate(scores, right, groups).queries == 150


def test_standardised_scores_rank_alike(random):
    scores, reference = random.normal(size=(3, 8)), 5 + 3 * random.normal(size=(3, 400))
    found = standardise(scores, reference)
    np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(scores, axis=1))
    np.testing.assert_allclose(standardise(7 * scores - 2, 7 * reference - 2), found)
    np.testing.assert_allclose(standardise(reference, reference).std(axis=1), 1)
