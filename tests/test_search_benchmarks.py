"""The benchmarks of the search, at their smallest."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_xmr.index.answer_sets import calibrate

FOLDER = Path(__file__).parent.parent / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_backends_are_measured(capsys):
    search = load("search")
    search.print_table(*search.made_up(400, 5, 8), ["exact"])
    told = capsys.readouterr().out
    assert "400 vectors of 9" in told
    rows = re.findall(r"^exact (float\d\d) +(\S+) +\S+ +\S+ +\S+ +\S+ +(\S+)", told, re.M)
    assert rows[0][:2] == ("float32", "1.000")
    assert float(rows[1][1]) >= 0.9
    assert all(float(memory) >= 0 for *_, memory in rows)


def test_points_lie_between_neighbours(random):
    search = load("search")
    photos = {"mean": random.normal(size=(30, 4)), "log_variance": random.normal(size=(30, 4))}
    grown = search.between(photos, 100)
    for name, values in photos.items():
        assert grown[name].shape == (100, 4)
        np.testing.assert_array_equal(grown[name][:30], values)
        assert (grown[name][30:] <= values.max(axis=0)).all()
        assert (grown[name][30:] >= values.min(axis=0)).all()
    np.testing.assert_array_equal(search.between(photos, 7)["mean"], photos["mean"][:7])


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_coverage_is_measured(random, shift):
    answer_sets = load("answer_sets")

    def split(lower):
        right = random.random((400, 60)) < 0.1
        right[:, 0] = True
        scores = random.normal(size=right.shape) + np.where(right, 2.0 + lower, 0.0)
        return SimpleNamespace(scores=scores, right=right, groups=np.arange(400) // 2)

    known, asked = split(0.0), split(shift)
    sets = calibrate(known.scores, known.right, known.groups)
    found = answer_sets.measure(sets, asked)
    told = found["at least 80% of them in the set (promised 90)"]
    share, low, high = map(float, re.findall(r"[\d.]+", told))
    assert low < share < high
    assert (high >= 90) == (shift == 0)


def test_a_photo_that_fits_every_query_comes_later():
    quality = load("search_quality")
    right = np.zeros((4, 40), bool)
    right[:, :10] = True
    scores = np.where(right, 1.0, 0.0)
    scores[:, 30:] = 2.0  # These are near to all captions.
    of_sample = np.where(np.arange(40)[:, None] >= 30, 2.0, np.zeros((1, 50)))
    assert quality.precision(scores, right) == 0
    scale = quality.best_scale(of_sample, scores, right)
    assert quality.precision(scores - quality.held_against(of_sample, scale), right) == 1
