"""Selective answers: risk and coverage in the order of certainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_xmr.metrics.bootstrap import LEVEL, resampled_means
from keras_xmr.uncertainty.sigma import equal_parts

_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The share of wrong answers among the most certain queries, by the share of answered queries.

    Attributes:
        coverage: The share of queries that are answered, ascending (queries,).
        risk: The share of wrong answers among these (queries,).
        best: The same in the order of an oracle, which puts wrong answers last.
        area: Mean of `risk`: AURC (Geifman and El-Yaniv 2017).
        best_area: That of the oracle.
        random_area: That of a random order: the share of wrong answers among all.
    """

    coverage: np.ndarray
    risk: np.ndarray
    best: np.ndarray
    area: float
    best_area: float
    random_area: float

    @property
    def gain(self) -> float:
        """Progress from a random order to the oracle: 1 is best, below 0 is misleading."""
        possible = self.random_area - self.best_area
        return (self.random_area - self.area) / possible if possible > 0 else 0.0


def risk_coverage(uncertainty: np.ndarray, correct: np.ndarray) -> RiskCoverage:
    """Answers queries from the most to the least certain.

    Queries of one uncertainty have no order: each counts as the mean of them all.

    Args:
        uncertainty: Of each query (queries,).
        correct: 1 for a right answer, 0 for a wrong one; NaN leaves a query out.
    """
    known = ~np.isnan(correct)
    uncertainty, wrong = uncertainty[known], 1.0 - correct[known]
    _, tied, sizes = np.unique(uncertainty, return_inverse=True, return_counts=True)
    expected = (np.bincount(tied, wrong) / sizes)[np.sort(tied)]
    answered = np.arange(1, len(wrong) + 1)
    risk, best = np.cumsum(expected) / answered, np.cumsum(np.sort(wrong)) / answered
    return RiskCoverage(
        answered / len(wrong),
        risk,
        best,
        float(risk.mean()),
        float(best.mean()),
        float(wrong.mean()),
    )


def narrow_gaps(scores: np.ndarray) -> np.ndarray:
    """Uncertainty from scores alone: minus the gap between the first two (queries,).

    A baseline of sigma that needs no training.

    Args:
        scores: Scores (queries, candidates), of two candidates or more.
    """
    second, first = np.partition(scores, (-2, -1), axis=1)[:, -2:].T
    return second - first


def bin_intervals(
    uncertainty: np.ndarray, metric: np.ndarray, groups: np.ndarray, count: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals of the means of `uncertainty.bins`, by a bootstrap of groups of queries.

    Args:
        uncertainty: Of each query (queries,).
        metric: Of each query; NaN leaves a query out.
        groups: The group of each query: captions of one image are not independent.
        count: Number of bins.

    Returns:
        The lower and the upper end of each bin.
    """
    known = ~np.isnan(metric)
    uncertainty, metric, groups = uncertainty[known], metric[known], groups[known]
    parts = equal_parts(uncertainty, count)
    columns = np.full((len(metric), len(parts)), np.nan)
    for number, part in enumerate(parts):
        columns[part, number] = metric[part]
    means = resampled_means(columns, groups, resamples=_RESAMPLES)
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail], axis=0)
    return low, high
