"""The paired bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.metrics.bootstrap import (
    Difference,
    difference,
    holm,
    resampled_means,
)


def loop(values: np.ndarray, groups: np.ndarray, num_groups: int, draws: int, seed: int):
    """Resamples group by group and query by query, with the same random numbers."""
    random = np.random.default_rng(seed)
    means = []
    for drawn in random.integers(0, num_groups, size=(draws, num_groups)):
        queries = [query for group in drawn for query in np.flatnonzero(groups == group)]
        means.append([np.nanmean(values[queries, c]) for c in range(values.shape[1])])
    return np.array(means)


@pytest.mark.parametrize("missing", [False, True])
def test_means_of_resamples_are_those_of_a_plain_loop(random, missing, monkeypatch):
    monkeypatch.setattr("keras_xmr.metrics.bootstrap._BLOCK", 100)
    values = random.random((12, 3))
    groups = np.array([0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 6, 7])
    if missing:
        values[[0, 5, 11], [0, 1, 2]] = np.nan
    found = resampled_means(values, groups, 8, resamples=40, seed=3)
    np.testing.assert_allclose(found, loop(values, groups, 8, 40, 3), rtol=1e-12)
    own = resampled_means(values, resamples=40, seed=3)
    np.testing.assert_allclose(own, loop(values, np.arange(12), 12, 40, 3), rtol=1e-12)


def by_queries(apart, resamples=10_000):
    return difference(float(np.nanmean(apart)), resampled_means(apart, resamples=resamples)[:, 0])


def test_equal_systems_are_not_apart():
    assert by_queries(np.zeros((50, 1))) == Difference(0, 0, 0, 1)
    assert by_queries(np.ones((50, 1))).p_value == pytest.approx(2 / 10_001)
    # The means of the same numbers, summed in another order.
    assert difference(0.0, np.array([1e-17, 1e-17, 1e-17])).p_value == 1


def test_p_value_and_interval_agree(random):
    for shift in np.linspace(0, 0.4, 9):
        found = by_queries(random.normal(shift, 1, size=(100, 1)), resamples=4000)
        outside = found.low > 0 or found.high < 0
        if abs(found.p_value - 0.05) > 0.002:
            assert outside == (found.p_value < 0.05)


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1, 1])
    assert len(holm([])) == 0


def test_queries_without_a_value():
    assert difference(np.nan, np.array([np.nan])).p_value == 1
    with pytest.raises(ValueError, match="no queries"):
        resampled_means(np.zeros((0, 1)))
