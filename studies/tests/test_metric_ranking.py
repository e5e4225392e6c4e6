"""Kendall's tau between two orders of methods."""

from __future__ import annotations

import numpy as np
from benchmark_modules import benchmark
from scipy.stats import kendalltau

study = benchmark("methods_table", "studies")


def test_tau_is_that_of_kendall(study, random):
    left, right = random.integers(0, 5, (2, 4, 9)).astype(float)
    expected = [kendalltau(*pair).statistic for pair in zip(left, right, strict=True)]
    np.testing.assert_allclose(study.tau(left, right), expected)
    assert np.isnan(study.tau(np.zeros(3), np.arange(3.0)))
