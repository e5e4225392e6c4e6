"""Differences with intervals, and verdicts of a family."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from keras_xmr.metrics.bootstrap import holm
from studies.comparisons import Difference, Family, Permuted, variance_of_seeds


def test_a_difference_is_tested_as_by_student(random):
    values = random.normal(0.4, 1, 12)
    found = Difference.of(values)
    assert found.p_value == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert (found.p_value < 0.05) == (abs(found.value) > found.half)


def test_variance_of_seeds_widens_by_their_few_degrees_of_freedom(random):
    values = random.normal(size=400)
    plain = Difference.of(values)
    seeds = np.array([-1.0, 0.0, 1.0])
    wide = Difference.of(values, *variance_of_seeds(seeds))
    assert variance_of_seeds(seeds) == [(pytest.approx(1 / 3), 2.0)]
    assert wide.freedom < 3 < plain.freedom
    assert wide.half > 4.2 * np.sqrt(1 / 3)
    assert variance_of_seeds(seeds[:1]) == []


@pytest.mark.parametrize("seeds", [2, 3])
def test_crossed_intervals_hold_the_truth(random, seeds):
    """Queries and seeds are both drawn; their sum errs on the wide side."""
    trials, hits = 1_000, 0
    for _ in range(trials):
        values = random.normal(size=40) + random.normal(0, 0.1, (seeds, 1))
        found = Difference.crossed(values + random.normal(0, 0.3, values.shape))
        hits += abs(found.value) <= found.half
    assert hits / trials >= 0.93


def test_verdicts_are_of_the_whole_family():
    differences = [Difference(value, 1.0, 1e6) for value in (3.5, -3.5, 2.2, 0.1)]
    family = Family()
    for number, difference in enumerate(differences):
        family.add(difference, str(number))
    expected = holm([each.p_value for each in differences])
    np.testing.assert_allclose(list(family.p_values().values()), expected)
    assert [family.verdict(str(n)) for n in range(3)] == ["confirmed", "reversed", "undecided"]
    assert differences[2].p_value < 0.05
    assert family.verdict("3", expected=5.0) == "not observed"
    assert family.verdict("3", expected=1.0) == "undecided"
    with pytest.raises(ValueError, match="twice"):
        family.add(differences[0], "0")


def test_a_permutation_test_keeps_its_p_value(random):
    found = Permuted(0.3, random.normal(0.3, 0.1, 500), 0.006)
    family = Family()
    family.add(found, "tau")
    assert family.verdict("tau") == "confirmed"
    assert found.visible == pytest.approx(0.28, abs=0.03)
