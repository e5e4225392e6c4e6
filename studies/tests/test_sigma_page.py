"""Rank correlations of sigma with controls held fixed, against residuals of regressions."""

from __future__ import annotations

import numpy as np
from benchmark_modules import benchmark

sigma_page = benchmark("sigma_page", "studies")


def test_partial_correlations_are_those_of_residuals(sigma_page):
    random = np.random.default_rng(0)
    outcome = random.normal(size=300)
    columns = random.normal(size=(300, len(sigma_page.NAMES))) + outcome[:, None] * random.random(7)
    found = sigma_page.correlations(columns, outcome)[len(sigma_page.NAMES) :]
    expected = []
    for names in sigma_page.HELD_FIXED.values():
        fixed = [sigma_page.NAMES.index(name) for name in names]
        controls = np.column_stack([np.ones(300), columns[:, fixed]])
        left = [
            own - controls @ np.linalg.lstsq(controls, own, rcond=None)[0]
            for own in (columns[:, 0], outcome)
        ]
        expected.append(np.corrcoef(*left)[0, 1])
    np.testing.assert_allclose(found, expected, atol=1e-5)
