"""Paired bootstrap: which differences between two systems the queries can tell from chance.

Both systems answer the same queries, so a resample of the queries is drawn once and both are
measured on it: what makes a query hard for both cancels out of their difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95

# Numbers drawn at once: a block of resamples with as many counts, 8 bytes each.
_BLOCK = 1 << 21


@dataclass(frozen=True)
class Difference:
    """How far two systems are apart.

    Attributes:
        value: The difference of their means over the queries.
        low: Lower end of the percentile interval of `LEVEL`.
        high: Its upper end.
        p_value: Two-sided: the smallest alpha whose interval of 1 - alpha leaves out 0.
    """

    value: float
    low: float
    high: float
    p_value: float


def resampled_means(
    values: np.ndarray,
    groups: np.ndarray | None = None,
    num_groups: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """Means over resampled queries.

    Queries of one group are drawn together: the captions of one image are not independent, and
    an interval that took them so would be too narrow. Calls with the same number of groups,
    resamples and seed draw the same groups, so what they return may be subtracted and added.

    The resamples are drawn in blocks, as counts of how often each group was drawn; all columns
    share them, so their means are one matrix product. Memory: a block and the answer.

    Args:
        values: A column for each metric of each system (queries, columns). NaN leaves a query
            out of a column.
        groups: The group of each query, int (queries,); by default each is its own.
        num_groups: How many groups there are; by default as many as `groups` names.
        resamples: How often the queries are resampled.
        seed: Seed of the draws.

    Returns:
        Float64 (resamples, columns); NaN where no query of a resample has a value.

    Raises:
        ValueError: If there are no queries.
    """
    if not len(values):
        raise ValueError("there are no queries to resample")
    groups = np.arange(len(values)) if groups is None else groups
    num_groups = int(groups.max()) + 1 if num_groups is None else num_groups
    known = ~np.isnan(values)
    sums = np.zeros((num_groups, values.shape[1]))
    np.add.at(sums, groups, np.where(known, values, 0))
    sizes = np.zeros_like(sums)
    np.add.at(sizes, groups, known)
    if (sizes == sizes[:, :1]).all():
        sizes = sizes[:, :1]
    random = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    step = max(1, _BLOCK // num_groups)
    for first in range(0, resamples, step):
        rows = min(step, resamples - first)
        drawn = random.integers(0, num_groups, size=(rows, num_groups))
        drawn += num_groups * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * num_groups)
        weights = times.reshape(rows, num_groups).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[first : first + rows] = (weights @ sums) / (weights @ sizes)
    return means


def difference(value: float, resampled: np.ndarray) -> Difference:
    """Interval and p-value of a difference (Efron and Tibshirani 1993, Ch. 13 and 15).

    The p-value is that of the interval turned around: twice the part of resamples on the rarer
    side of 0, those at 0 counted against the difference. It is at least 2 / (resamples + 1).

    Args:
        value: The difference over the queries themselves.
        resampled: The same over each resample, (resamples,); NaN are left out.
    """
    resampled = resampled[~np.isnan(resampled)]
    if not len(resampled):
        return Difference(value, np.nan, np.nan, 1.0)
    # Means of the same numbers in another order differ in their last digits.
    resampled = np.where(np.abs(resampled) < 1e-12, 0, resampled)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    rarer = min(np.count_nonzero(resampled <= 0), np.count_nonzero(resampled >= 0))
    p_value = min(1.0, 2 * (rarer + 1) / (len(resampled) + 1))
    return Difference(value, float(low), float(high), p_value)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values that account for how many were looked at (Holm 1979).

    Where they are below alpha, the chance that any of them is there by accident is at most
    alpha.

    Args:
        p_values: The p-values of one family of comparisons (n,).

    Returns:
        The adjusted ones, in the same order, float64 (n,).
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.maximum.accumulate(np.minimum(1, p_values[order] * factors))
    adjusted = np.empty_like(stepped)
    adjusted[order] = stepped
    return adjusted
