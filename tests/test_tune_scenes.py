"""The benchmark that tunes methods on the scenes: what it tries, and what it does not again."""

from __future__ import annotations

import math

import pytest
from benchmark_modules import benchmark

from keras_xmr.config.loader import packaged_ablations, packaged_configs

pytestmark = pytest.mark.slow

bench = benchmark("tune_scenes")


def test_every_method_has_what_is_tuned(bench):
    known = packaged_configs() | packaged_ablations()
    for method in bench.METHODS:
        assert method.config in known
        for key in (bench.RATE, *method.keys):
            assert bench.of_config(method.config, key) > 0


def test_the_best_is_at_no_edge_and_nothing_is_trained_twice(bench, monkeypatch, tmp_path):
    trained = []

    def train(name, setting, work):
        trained.append(setting)
        values = dict(setting)
        rate, margin, seed = values[bench.RATE], values["objective.0.margin"], values["seed"]
        far = abs(math.log2(rate / 2e-3)) + abs(math.log2(margin / 0.1))
        return 100.0 - 10 * far + seed / 100

    monkeypatch.setattr(bench, "train", train)
    method = bench.Method("scenes_vse0", ("objective.0.margin",))  # which has 5e-4 and 0.2
    results = tmp_path / "results.jsonl"
    rates, margins = bench.tune(method, results, tmp_path)
    assert sorted(rates.found) == [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]
    assert sorted(margins.found) == [0.05, 0.1, 0.2, 0.4]
    assert margins.at == 2e-3
    assert margins.found[0.1] == (100.0, 101.0)
    assert margins.line() == (
        "| `scenes_vse0`, rate 0.002 | margin 0.05: 90.0, 91.0; **0.1: 100.0, 101.0**; "
        "0.2: 90.0, 91.0; 0.4: 80.0, 81.0 |"
    )
    assert len(trained) == len(set(trained)) == 2 * 8  # one margin is among the rates
    assert bench.tune(method, results, tmp_path) == [rates, margins]
    assert len(trained) == 16
    monkeypatch.setattr(bench, "digest_of", lambda name: "another config")
    bench.tune(method, results, tmp_path, seeds=[0], only="rates")
    assert len(trained) == 16 + 5
    monkeypatch.undo()
    monkeypatch.setattr(bench, "train", train)
    [alone] = bench.tune(method, results, tmp_path, seeds=[0], only="rates")
    assert alone.found == {rate: rsums[:1] for rate, rsums in rates.found.items()}
    assert len(trained) == 16 + 5
    [alone] = bench.tune(method, results, tmp_path, seeds=[0], only="values")
    assert alone.at == 5e-4  # what the config has, not the best rate
    assert sorted(alone.found) == [0.05, 0.1, 0.2, 0.4]
    assert len(trained) == 16 + 5 + 3
