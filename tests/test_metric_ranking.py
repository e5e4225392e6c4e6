"""How many labels order methods as people do."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark
from scipy.stats import kendalltau

study = benchmark("methods_table", "studies")


def test_tau_is_that_of_kendall(study, random):
    left, right = random.integers(0, 5, (2, 4, 9)).astype(float)
    expected = [kendalltau(*pair).statistic for pair in zip(left, right, strict=True)]
    np.testing.assert_allclose(study.tau(left, right), expected)
    assert np.isnan(study.tau(np.zeros(3), np.arange(3.0)))


@pytest.mark.slow
def test_more_labels_order_methods_better(study):
    methods = study.methods_of(study.read_lines(study.RESULTS))[:9]
    rows = study.taus_of_labels(methods, draws=40)
    assert [labels for labels, _, _ in rows] == list(study.LABELS)
    assert [captions for _, captions, _ in rows] == [0, 2, 21, 209, 418]
    few, many = (np.mean(rows[n][2]) for n in (1, 4))
    assert few < many <= 1
