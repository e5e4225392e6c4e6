"""The study of what annotated metrics reward, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmark_modules import benchmark

study = benchmark("metrics_reward", "studies")
PAGES = Path(__file__).parents[2] / "docs/results"


@pytest.mark.slow
def test_the_page_has_what_the_results_say(study, capsys):
    study.main([])
    tables = capsys.readouterr().out
    page = (PAGES / "flickr8k.md").read_text("utf-8")
    section = page.partition("## What do annotated metrics reward?")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line[:1] == "|"]
    assert len(rows) == 2 + len(study.STRATA)
    assert set(rows) <= set(tables.splitlines())
    assert "0.31, resampled [0.10, 0.64], permutation p = 0.0060" in tables
    index = (PAGES / "index.md").read_text("utf-8")
    known = set(re.findall(r"\d+\.\d+ ± \d+\.\d+", tables))
    assert {"0.36 ± 0.06", "0.24 ± 0.11", "0.76 ± 0.14"} <= known
    assert all(text in index for text in ("-0.36 ± 0.06", "-0.24 ± 0.11", "0.76 ± 0.14"))


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
