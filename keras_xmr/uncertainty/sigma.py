"""The uncertainty of Gaussian embeddings, and its correlation with metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bins:
    """Queries in bins of growing uncertainty (Chun et al. 2021, Fig. 6).

    Attributes:
        log_sigma: Mean uncertainty of each bin.
        value: Mean of a metric over the queries of each bin.
        correlation: Spearman correlation of uncertainty and metric over all queries.
        interval: Its 95 % interval (Bonett and Wright 2000).
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
    """Logarithm of the geometric mean of sigma of each item; None without variances."""
    if "log_variance" not in embedding:
        return None
    return 0.5 * embedding["log_variance"].mean(axis=1)


def few_words(texts: Sequence[str]) -> np.ndarray:
    """Uncertainty of captions from their length alone: minus the number of words (captions,).

    A baseline of sigma: short captions are ambiguous.
    """
    return -np.array([len(text.split()) for text in texts], np.float64)


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Spearman correlation; 0 where one side does not vary."""
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    import scipy.stats  # Takes half a second, and nothing else needs it.

    return float(scipy.stats.spearmanr(left, right).statistic)


def correlation_interval(correlation: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a Spearman correlation of `count` pairs (Bonett and Wright 2000)."""
    if count < 4:
        return -1.0, 1.0
    error = np.sqrt((1 + correlation**2 / 2) / (count - 3))
    centre = np.arctanh(np.clip(correlation, -0.999999, 0.999999))
    low, high = np.tanh(centre - 1.96 * error), np.tanh(centre + 1.96 * error)
    return float(low), float(high)


def equal_parts(uncertainty: np.ndarray, count: int) -> list[np.ndarray]:
    """The numbers of queries in bins of equal size, from certain to uncertain."""
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
    parts = equal_parts(uncertainty, count)
    correlation = rank_correlation(uncertainty, metric)
    return Bins(
        [float(uncertainty[part].mean()) for part in parts],
        [float(metric[part].mean()) for part in parts],
        correlation,
        correlation_interval(correlation, min(len(metric), independent or len(metric))),
    )
