"""Assessment of uncertainty: sigma of embeddings, selective answers, calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.bootstrap import LEVEL, resampled_means

_RESAMPLES = 2000

BINS = 15
"""Bins of match probabilities."""

# Rows of scores that become probabilities at once.
_ROWS = 256


@dataclass(frozen=True)
class Bins:
    """Queries in bins of growing uncertainty (Chun et al. 2021, Fig. 6).

    Attributes:
        log_sigma: Mean uncertainty of each bin.
        value: Mean of a metric over the queries of each bin.
        correlation: Spearman correlation of uncertainty and metric over all queries.
        interval: The 95 % interval (Bonett and Wright 2000).
    """

    log_sigma: list[float]
    value: list[float]
    correlation: float
    interval: tuple[float, float]

    @property
    def is_informative(self) -> bool:
        """True if uncertain queries have significantly lower metrics."""
        return self.interval[1] < 0


def log_sigma(embedding: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the logarithm of the geometric mean of sigma of each item; None without variances."""
    if "log_variance" not in embedding:
        return None
    return 0.5 * embedding["log_variance"].mean(axis=1)


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Computes the Spearman correlation; 0 where one side does not vary."""
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    import scipy.stats  # Takes half a second, and nothing else needs it.

    return float(scipy.stats.spearmanr(left, right).statistic)


def correlation_interval(correlation: float, count: int) -> tuple[float, float]:
    """Returns the 95 % interval of a Spearman correlation of `count` pairs (Bonett and Wright
    2000).
    """
    if count < 4:
        return -1.0, 1.0
    error = np.sqrt((1 + correlation**2 / 2) / (count - 3))
    centre = np.arctanh(np.clip(correlation, -0.999999, 0.999999))
    low, high = np.tanh(centre - 1.96 * error), np.tanh(centre + 1.96 * error)
    return float(low), float(high)


def equal_parts(uncertainty: np.ndarray, count: int) -> list[np.ndarray]:
    """Returns the numbers of queries in bins of equal size, from certain to uncertain."""
    queries = len(uncertainty)
    count = min(count, max(2, queries // 5), queries)
    return np.array_split(np.argsort(uncertainty, kind="stable"), count)


def bins(
    uncertainty: np.ndarray, metric: np.ndarray, count: int = 10, independent: int | None = None
) -> Bins:
    """Sorts queries into bins of equal size by their uncertainty.

    Args:
        uncertainty: Of each query (queries,).
        metric: Of each query; NaN leaves a query out.
        count: Number of bins; fewer for few queries, so that a bin has at least 5.
        independent: Number of independent queries for the interval, since captions of one image
            are similar. None for all.
    """
    known = ~np.isnan(metric)
    uncertainty, metric = uncertainty[known], metric[known].astype(float)
    groups = equal_parts(uncertainty, count)
    correlation = rank_correlation(uncertainty, metric)
    return Bins(
        [float(uncertainty[group].mean()) for group in groups],
        [float(metric[group].mean()) for group in groups],
        correlation,
        correlation_interval(correlation, min(len(metric), independent or len(metric))),
    )


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The share of wrong answers among the most certain queries, by the share of answered queries.

    Attributes:
        coverage: The share of queries that are answered, ascending (queries,).
        risk: The share of wrong answers among these (queries,).
        best: The same in the order of an oracle, which puts wrong answers last.
        area: Mean of `risk`: AURC (Geifman and El-Yaniv 2017).
        best_area: The area of the oracle.
        random_area: The area of a random order: the share of wrong answers among all.
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
    """Returns uncertainty from scores alone: minus the gap between the first two (queries,).

    A baseline of sigma that needs no training.

    Args:
        scores: Scores (queries, candidates), of two candidates or more.
    """
    second, first = np.partition(scores, (-2, -1), axis=1)[:, -2:].T
    return second - first


def bin_intervals(
    uncertainty: np.ndarray, metric: np.ndarray, groups: np.ndarray, count: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Returns 95 % intervals of the means of `uncertainty.bins`, by a bootstrap of groups of
    queries.

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
    members = equal_parts(uncertainty, count)
    columns = np.full((len(metric), len(members)), np.nan)
    for number, some in enumerate(members):
        columns[some, number] = metric[some]
    means = resampled_means(columns, groups, resamples=_RESAMPLES)
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(means, [tail, 1 - tail], axis=0)
    return low, high


@dataclass(frozen=True, eq=False)
class Reliability:
    """Answers in bins of equal width of their probability (Guo et al. 2017).

    Attributes:
        count: Number of answers per bin (bins,).
        predicted: The mean probability; NaN in an empty bin.
        observed: The share of them that is relevant; NaN in an empty bin.
    """

    count: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error (ECE): the mean gap of both, weighted by `count`."""
        gaps = np.nan_to_num(np.abs(self.predicted - self.observed))
        return float(np.sum(self.count * gaps) / max(self.count.sum(), 1))

    @property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The 95 % interval of `observed`, with answers as independent (Wilson 1927)."""
        count, z = np.maximum(self.count, 1), 1.96
        centre = (self.observed + z**2 / (2 * count)) / (1 + z**2 / count)
        spread = self.observed * (1 - self.observed) / count + z**2 / (4 * count**2)
        half = z * np.sqrt(spread) / (1 + z**2 / count)
        return centre - half, centre + half


def reliability_of_pairs(logits: np.ndarray, judgements: Judgements) -> Reliability:
    """Returns the reliability of all pairs of images and captions.

    Args:
        logits: Log-odds of a match (images, captions), an array or a memory map.
        judgements: The relevant pairs.
    """
    sums = np.zeros((3, BINS))
    for first in range(0, len(logits), _ROWS):
        rows = slice(first, first + _ROWS)
        right = judgements.grades[rows].toarray() > 0
        sums += _sums(np.ravel(logits[rows]), right.ravel())
    return _from_sums(sums)


def reliability_of_best(logits: np.ndarray, judgements: Judgements) -> Reliability:
    """Returns the reliability of the first answer of each query.

    Args:
        logits: Log-odds of a match (queries, candidates).
        judgements: The relevant pairs, of the same shape.
    """
    best = np.argmax(logits, axis=1)
    queries = np.arange(len(best))
    right = np.asarray(judgements.grades[queries, best]).ravel() > 0
    return _from_sums(_sums(logits[queries, best], right))


def _sums(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns, per bin, the number of answers, sum of their probabilities, number of right ones."""
    probability = expit(logits.astype(np.float64))
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    weights = (None, probability, right.astype(np.float64))
    return np.stack([np.bincount(place, w, minlength=BINS) for w in weights])


def _from_sums(sums: np.ndarray) -> Reliability:
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0].astype(np.int64), sums[1] / sums[0], sums[2] / sums[0])
