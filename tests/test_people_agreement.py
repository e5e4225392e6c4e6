"""Agreement of people, against printed figures and plain counting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmark_modules import benchmark

from keras_xmr.utils.errors import ArgumentError

study = benchmark("people_agreement", "studies")

# Krippendorff 2011, "Computing Krippendorff's alpha-reliability", part C: four observers.
OBSERVERS = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""


@pytest.fixture
def observers():
    rows = [line.split() for line in OBSERVERS.split("\n") if line]
    return np.array([[np.nan if cell == "." else float(cell) for cell in row] for row in rows]).T


@pytest.mark.parametrize(
    ("level", "printed"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_that_which_is_printed(study, observers, level, printed):
    assert study.krippendorff_alpha(observers, level) == pytest.approx(printed, abs=5e-4)


def test_alpha_of_chance_is_0_and_that_of_harmony_is_1(study, random):
    assert abs(study.krippendorff_alpha(random.integers(0, 4, (20_000, 3)).astype(float))) < 0.02
    same = np.repeat(random.integers(0, 4, (50, 1)), 3, axis=1).astype(float)
    assert study.krippendorff_alpha(same) == pytest.approx(1)
    assert np.isnan(study.krippendorff_alpha(np.ones((5, 3))))
    assert np.isnan(study.alpha_of_counts(np.eye(2, dtype=int)))
    assert np.isnan(study.krippendorff_alpha(np.zeros((3, 0))))
    assert study.krippendorff_alpha([[1, 1], [2, 2]]) == pytest.approx(1)
    for ratings in ("x", [1.0, 2.0], [["a", "b"]]):
        with pytest.raises(ArgumentError, match=r"a matrix .* of numbers"):
            study.krippendorff_alpha(ratings)
        with pytest.raises(ArgumentError, match=r"a matrix .* of numbers"):
            study.pairwise_agreement(ratings)


def test_levels_weights_and_ratings_that_do_not_exist_are_refused(study):
    assert study.weighted_kappa([1, 2], [1, 2]) == study.pairwise_agreement([[2, 0], [0, 2]]) == 1
    with pytest.raises(ArgumentError, match="the levels are nominal, ordinal, interval, not 'x'"):
        study.krippendorff_alpha([[1, 1], [2, 2]], "x")
    with pytest.raises(ArgumentError, match="the weights are none, linear, quadratic, not 'x'"):
        study.weighted_kappa([1, 2], [1, 2], "x")
    with pytest.raises(ArgumentError, match="two raters give each item"):
        study.weighted_kappa([1, 2], [1, 2, 3])


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_equals_plain_counting(study, random, weights):
    left = random.integers(1, 5, 200)
    right = np.where(random.random(200) < 0.5, left, random.integers(1, 5, 200))

    def apart(a, b):
        return {"none": float(a != b), "linear": abs(a - b), "quadratic": (a - b) ** 2}[weights]

    observed = np.mean([apart(a, b) for a, b in zip(left, right, strict=True)])
    expected = np.mean([apart(a, b) for a, b in itertools.product(left, right)])
    assert study.weighted_kappa(left, right, weights) == pytest.approx(1 - observed / expected)
    assert np.isnan(study.weighted_kappa(np.ones(3, int), np.ones(3, int)))


def test_pairwise_agreement_equals_plain_counting(study, random):
    votes = [random.integers(0, 2, random.integers(1, 7)) for _ in range(50)]
    pairs = [a == b for own in votes for a, b in itertools.combinations(own, 2)]
    counts = np.array([[sum(own), len(own) - sum(own)] for own in votes])
    assert study.pairwise_agreement(counts) == pytest.approx(np.mean(pairs))
