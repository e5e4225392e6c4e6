"""What the uncertainty of Gaussian embeddings tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from keras_xmr.evaluation.embed import Arrays


@dataclass(frozen=True)
class Bins:
    """Queries in bins of growing uncertainty (Chun et al. 2021, Fig. 6).

    Attributes:
        log_sigma: Mean uncertainty of each bin.
        value: Mean of a metric over the queries of each bin.
        correlation: Spearman correlation of uncertainty and metric over all queries.
    """

    log_sigma: list[float]
    value: list[float]
    correlation: float


def log_sigma(embedding: Arrays) -> np.ndarray | None:
    """Logarithm of the geometric mean of sigma of each item; None without variances."""
    if "log_variance" not in embedding:
        return None
    return 0.5 * embedding["log_variance"].mean(axis=1)


def rank_correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Spearman correlation; 0 where one side does not vary."""
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(scipy.stats.spearmanr(left, right).statistic)


def bins(uncertainty: np.ndarray, metric: np.ndarray, count: int = 10) -> Bins:
    """Sorts queries into bins of equal size by their uncertainty.

    Args:
        uncertainty: Of each query (queries,).
        metric: Of each query; NaN leaves a query out.
        count: How many bins.
    """
    known = ~np.isnan(metric)
    uncertainty, metric = uncertainty[known], metric[known].astype(float)
    parts = np.array_split(np.argsort(uncertainty, kind="stable"), min(count, len(metric)))
    return Bins(
        [float(uncertainty[part].mean()) for part in parts],
        [float(metric[part].mean()) for part in parts],
        rank_correlation(uncertainty, metric),
    )
