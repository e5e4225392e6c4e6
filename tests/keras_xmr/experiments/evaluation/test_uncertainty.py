"""What the uncertainty of embeddings tells, and when it tells nothing."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.experiments.evaluation.uncertainty.assessment import bins, correlation_interval


def test_an_uncertainty_is_informative_where_the_unsure_surely_find_less():
    generator = np.random.default_rng(1)
    sigma = generator.normal(size=500)
    helpful = bins(sigma, generator.uniform(size=500) < 1 / (1 + np.exp(2 * sigma)))
    assert helpful.is_informative
    assert helpful.interval[0] < helpful.correlation < helpful.interval[1] < 0
    assert not bins(np.arange(500.0), np.tile([1, 0], 250)).is_informative
    assert not bins(
        -sigma, generator.uniform(size=500) < 1 / (1 + np.exp(2 * sigma))
    ).is_informative
    # Bins of one or two queries say nothing.
    assert [len(bins(np.arange(n), np.ones(n)).value) for n in (1, 5, 14, 24, 100)] == [
        *(1, 2, 2, 4, 10)
    ]
    constant = bins(np.zeros(500), generator.uniform(size=500) < 0.5)
    assert constant.correlation == 0
    assert not constant.is_informative


def test_captions_of_one_image_count_once():
    sigma = np.repeat(np.arange(20.0), 5)
    recall = np.tile([1.0, 0, 0, 1, 0], 20) * (sigma < 12)
    wide, narrow = bins(sigma, recall, independent=20), bins(sigma, recall)
    assert wide.correlation == narrow.correlation
    assert np.ptp(wide.interval) > np.ptp(narrow.interval)
    assert correlation_interval(-0.9, 3) == pytest.approx((-1, 1))
