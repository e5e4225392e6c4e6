"""Which metric ranks methods as the truth does, on a small training."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from benchmark_modules import benchmark

study = benchmark("metric_ranking_scenes", "studies")


@pytest.fixture
def small(study, monkeypatch):
    """Two methods, trained for a moment on few scenes."""
    training = sys.modules["hardest_negative"]
    monkeypatch.setattr(training, "SIZES", {"train": 30, "test": 25})
    monkeypatch.setattr(training, "STEPS", 10)
    monkeypatch.setattr(study, "METHODS", study.METHODS[:3])
    monkeypatch.setattr(study, "SEEDS", (1, 2))
    monkeypatch.setattr(study, "methods_of", lambda lines: [])
    monkeypatch.setattr(study, "taus_of_labels", lambda methods, draws: [(0, 0, np.zeros(2))] * 4)
    training.data.cache_clear()
    yield
    training.data.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_results_become_a_table_and_a_figure(study, tmp_path, capsys):
    path = tmp_path / "lines.jsonl"
    study.main([f"--results={path}"])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 2 * len(study.GRADES) * 3
    assert lines[0]["metrics"].keys() == {*study.METRICS, study.TRUTH}
    assert lines[0]["labels"][0] == lines[0]["metrics"]["mAP@R"], "no label adds nothing"
    # More labels than there are pairs, so every pair is judged.
    assert lines[0]["labels"][-1] == lines[0]["metrics"][study.TRUTH]
    study.main([f"--results={path}", "--table", f"--figure={tmp_path / 'figure.png'}"])
    assert "3 methods, 2 seeds" in capsys.readouterr().out
    assert (tmp_path / "figure.png").stat().st_size > 1_000


def test_an_order_that_is_that_of_the_truth_has_a_tau_of_1(study, monkeypatch):
    monkeypatch.setattr(study, "METHODS", study.METHODS[:3])
    lines = [
        {
            **{"grade": 1, "seed": 1, "share": 0.1, "labels": [-n, n, n, n]},
            "metrics": dict.fromkeys((*study.METRICS, study.TRUTH), n),
        }
        for n in (3, 1, 2)
    ]
    found = study.taus(lines, 1)
    np.testing.assert_allclose([found["RSUM"][0], found["0 labels"][0]], [1, -1])
