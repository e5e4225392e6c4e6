"""The benchmarks of the search, at their smallest."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_xmr.search.answer_sets import calibrate
from keras_xmr.search.calibration import ScoredSplit

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Where its data classes look for it.
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_backends_are_measured(capsys):
    search, vectors = load("search"), load("search_vectors")
    made = vectors.made_up(400, 5, 8)
    search.print_table(made, ["exact"])
    told = capsys.readouterr().out
    assert "400 vectors of 9, 5 queries" in told
    rows = re.findall(r"^exact +(?!reads)(\S+) +\S+ +\S+ +\S+ +\S+ +\S+ +(\S+)", told, re.M)
    assert [recall for recall, _ in rows] == ["1.000"]
    assert all(float(memory) >= 0 for _, memory in rows)


def test_points_lie_between_neighbours(random):
    vectors = load("search_vectors")
    photos = {"mean": random.normal(size=(30, 4)), "log_variance": random.normal(size=(30, 4))}

    def grown(size):
        parts = list(vectors.between(photos, size))
        return {name: np.concatenate([part[name] for part in parts]) for name in photos}

    for name, values in grown(100).items():
        assert values.shape == (100, 4)
        np.testing.assert_array_equal(values[:30], photos[name])
        assert (values[30:] <= photos[name].max(axis=0)).all()
        assert (values[30:] >= photos[name].min(axis=0)).all()
    np.testing.assert_array_equal(grown(7)["mean"], photos["mean"][:7])
    near = vectors.neighbours(photos["mean"])
    assert near.shape == (30, 10)
    assert (near != np.arange(30)[:, None]).all()


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_coverage_is_measured(random, shift):
    answer_sets = load("answer_sets")

    def split(lower):
        right = random.random((400, 60)) < 0.1
        right[:, 0] = True
        scores = random.normal(size=right.shape) + np.where(right, 2.0 + lower, 0.0)
        return ScoredSplit(scores, right, np.arange(400) // 2)

    known, asked = split(0.0), split(shift)
    found = answer_sets.measure(calibrate(*known), asked)
    told = found["at least 80% of them in the set (promised 90)"]
    share, low, high = map(float, re.findall(r"[\d.]+", told))
    assert low < share < high
    assert (high >= 90) == (shift == 0)
