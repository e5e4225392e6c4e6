"""The benchmark that holds the claims of the papers against finished runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from finished_runs import finished_run

from keras_xmr.config.loader import packaged_ablations, packaged_configs
from keras_xmr.metrics.bootstrap import Difference


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
        yield importlib.import_module("claims")


def rows(bench, columns) -> dict[tuple[str, str], list[str]]:
    cells = [line.strip("| ").split(" | ") for line in bench.table(columns)][2:]
    return {(row[1], row[2]): row[3:] for row in cells}


def claim_of(bench, text):
    return next(claim for claim in bench.CLAIMS if claim.text == text)


def test_every_method_has_a_config(bench):
    known = packaged_configs() | packaged_ablations()
    names = {name for claim in bench.CLAIMS for name in (claim.left, claim.right)}
    assert {f"scenes_{name.partition(bench.BY)[0]}" for name in names} <= known.keys()
    assert set(bench._REAL.values()) <= known.keys()


def test_verdicts(bench):
    more, not_more = (
        bench.Claim("", "", "a", "b", ("rsum",)),
        bench.Claim("", "", "a", "b", (), False),
    )
    above, below = Difference(9, 6, 12, 1e-4), Difference(-9, -12, -6, 1e-4)
    level, wide = Difference(0, -3, 3, 0.9), Difference(0, -30, 30, 0.9)
    found = [[claim.verdict("rsum", each, each.p_value) for each in (above, below, level, wide)]
             for claim in (more, not_more)]  # fmt: skip
    unknown = "cannot tell"
    assert found == [
        ["**yes**", "**no**", unknown, unknown],
        ["**no**", "**yes**", "**yes**", unknown],
    ]
    assert more.verdict("rsum", above, 0.2) == unknown


def test_finished_runs_answer(bench, tmp_path):
    skills = {"scenes_vse0-seed1": 1.0, "scenes_vsepp-seed1": 3.0, "scenes_vsepp-seed2": 3.0}
    for name, skill in skills.items():
        finished_run(tmp_path, name, int(name[-1]), skill)
    finished_run(tmp_path, "scenes_dvse-seed1", 1, 1.0)
    found = rows(bench, {"scenes": bench.of_scenes(tmp_path)})
    verdict, difference = found["the hardest negative is above all", "RSUM"]
    assert verdict == "**yes**"
    assert difference.endswith("(seeds: 2 and 1)")
    # What was re-ranked has other scores in these runs.
    assert found["fast re-ranking raises RSUM", "RSUM"][0] == "**yes**"
    assert found["DAA raises ASP", "i2t ASP"][0] == "not run"
    assert found["its match probability is above its means", "i2t R-P"][0] == "not run"


def test_results_on_photos_answer(bench):
    random = np.random.default_rng(0)

    def result(method, fold, worse, asp):
        ranks = tuple(random.integers(1, 4, count) + worse for count in (20, 100))
        measures = {"asp": (np.full(20, asp), np.r_[np.nan, np.full(99, asp)])}
        measures["r_precision"] = tuple((side == 1).astype(float) for side in ranks)
        measures |= {
            f"reranked_recall_{k}": tuple(r - worse <= k for r in ranks) for k in (1, 5, 10)
        }
        return bench.Result(method, 500, fold, 0, ranks, measures)

    names = {"csv_pretrained_vsepp": (0, 0.5), "csv_pretrained_vse0": (10, 0.5),
             "csv_pretrained_dvse": (10, 0.5), "csv_pretrained_daa": (0, 0.7),
             "csv_pretrained": (0, 0.6)}  # fmt: skip
    found = bench.of_real(
        [result(name, fold, *how) for name, how in names.items() for fold in (0, 1)]
    )
    table = rows(bench, {"real": found})
    verdict, difference = table["the hardest negative is above all", "RSUM"]
    assert (verdict, difference[-10:]) == ("**yes**", "(folds: 2)")
    better = found[claim_of(bench, "the hardest negative is above all"), "rsum"][0]
    # Ranks of 1 to 3 against 11 to 13: only R@1 has chance in it.
    assert 200 + 200 < better.value < 600
    assert table["fast re-ranking raises RSUM", "RSUM"][0] == "**yes**"
    assert found[claim_of(bench, "DAA raises ASP"), "i2t_asp"][0].value == pytest.approx(10)
    assert table["the KL term helps", "i2t R-P"][0] == "not run"
