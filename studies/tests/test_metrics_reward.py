"""The study of what annotated metrics reward, and its page."""

from __future__ import annotations

import numpy as np
from benchmark_modules import benchmark

study = benchmark("metrics_reward", "studies")


def test_an_order_that_depends_on_the_stratum_is_found(study, random):
    """Methods that are ordered by RSUM where one photo fits, and reversed where six do."""
    skill = np.arange(10.0)
    values = np.concatenate(
        [sign * skill[:, None] + random.normal(size=(10, 40)) for sign in (1.0, 1.0, 1.0, -1.0)],
        axis=1,
    )

    class Known(study.Judged):
        rsum = skill
        values = None

    methods = [study.Method(f"m{n}", []) for n in range(10)]
    judged = Known(methods, "crowd", np.repeat([1, 2, 3, 6], 40))
    Known.values = values
    difference, share = study.permutation_test(judged, random)
    assert difference > 1.5
    assert share < 0.01
    assert np.quantile(study.resampled_difference(judged, random), 0.025) > 1
