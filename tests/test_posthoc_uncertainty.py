"""The benchmark of uncertainty after the fact: its figures, and a run on made-up features."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from benchmark_modules import benchmark

from keras_xmr.evaluation.uncertainty.assessment import rank_correlation, reliability, risk_coverage

bench = benchmark("posthoc_uncertainty")


@pytest.fixture(scope="module")
def tables(bench):
    return importlib.import_module("posthoc_tables")


def queries(random, count=300):
    unsure = random.normal(size=count)
    return unsure, (random.random(count) > 1 / (1 + np.exp(-1.5 * unsure))).astype(float)


def test_figures_are_those_of_the_report_card(tables, random):
    unsure, right = queries(random)
    logits = 0.3 - 1.1 * unsure
    drawn = np.bincount(random.integers(0, 300, 300), minlength=300)
    weights = np.stack([np.ones(300), drawn])
    found = np.stack(
        [
            tables.gain(unsure, right, weights),
            tables.correlation(unsure, right, weights),
            tables.error(logits, right, weights),
        ]
    )
    for place, rows in enumerate((np.arange(300), np.repeat(np.arange(300), drawn))):
        expected = [
            risk_coverage(unsure[rows], right[rows]).gain,
            rank_correlation(unsure[rows], right[rows]),
            reliability(logits[rows], right[rows] > 0).error,
        ]
        # Draws of one query are answered together here, and one after another there.
        np.testing.assert_allclose(found[:, place], expected, atol=1e-9 if place == 0 else 0.02)


def test_calibration_finds_the_odds_that_answers_were_drawn_with(tables, random):
    unsure, right = queries(random, 40_000)
    slope, offset = tables.calibrated(2.0 * unsure + 3.0, right)
    assert slope == pytest.approx(-0.75, rel=0.05)
    assert offset == pytest.approx(2.25, rel=0.05)


def test_moments_of_cosines_are_those_of_products_over_mean_norms(bench, random):
    means = [np.float32([[1.0, 0.3, -0.5, 0.8]]), np.float32([[0.7, -0.2, 0.1, 1.0]])]
    logs = [np.full((1, 4), np.log(0.01), np.float32), np.full((1, 4), np.log(0.02), np.float32)]
    expected, variance = bench.cosine_moments(means[0], logs[0], means[1], logs[1])
    draws = [
        m + np.exp(0.5 * v) * random.normal(size=(20_000, 4))
        for m, v in zip(means, logs, strict=True)
    ]
    products = np.sum(draws[0] * draws[1], axis=1)
    norms = np.prod([np.square(d).sum(axis=1).mean() for d in draws])
    assert float(expected[0, 0]) == pytest.approx(products.mean() / np.sqrt(norms), abs=0.005)
    assert float(variance[0, 0]) == pytest.approx(products.var() / norms, rel=0.05)


def made_up(bench, photos=70):
    """Photos that share a few hidden numbers with their captions."""
    random = np.random.default_rng(3)
    maps = np.random.default_rng(7).standard_normal((2, 4, 24))
    hidden = random.standard_normal((photos, 4))
    images = np.abs(hidden @ maps[0] + 0.5 * random.standard_normal((photos, 24)))
    captions = (hidden @ maps[1])[:, None] + random.standard_normal((photos, 2, 24))
    parts = np.array_split(random.permutation(photos), 7)
    return bench.Photos(images[:, None], captions, [], parts)


@pytest.mark.slow
def test_every_method_has_a_row_and_a_second_run_computes_nothing(
    bench, tmp_path, monkeypatch, capsys
):
    asked = []
    monkeypatch.setattr(bench, "read_photos", lambda options: asked.append(1) or made_up(bench))
    monkeypatch.setattr(bench, "EPOCHS", (1, 2))
    method = "csv_pretrained_asymvlm"
    arguments = ["--features=given", f"--work={tmp_path}", "--folds=1", f"--methods={method}"]
    bench.main(arguments)
    first = capsys.readouterr().out
    table = [line for line in first.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(bench.COMPUTED) + 1
    results = bench.read_results(tmp_path / "posthoc.jsonl")
    assert all(np.ptp(result.unsure["test"]["caption"]) > 0 for result in results)
    monkeypatch.setattr(bench, "Fold", lambda photos, number: SimpleNamespace(number=number))
    bench.main(arguments)
    assert capsys.readouterr().out.splitlines() == table
