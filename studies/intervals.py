"""Figures with 95 % intervals by bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, t

from keras_xmr.metrics.bootstrap import resampled_means

RESAMPLES = 2000


@dataclass(frozen=True)
class Figure:
    """A figure and its interval.

    Attributes:
        value: The figure.
        low: The lower end of its interval.
        high: The upper end.
        count: Of how many queries or pairs it is.
    """

    value: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, value: float, resampled: np.ndarray, count: int) -> Figure:
        """A figure with the percentile interval of its resamples (resamples,)."""
        known = resampled[~np.isnan(resampled)]
        low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
        return cls(float(value), float(low), float(high), count)


def mean(values: np.ndarray, groups: np.ndarray | None = None) -> Figure:
    """The mean of values that are not NaN; those of one group are drawn together."""
    return means({"": values}, groups)[""]


def means(columns: Mapping[str, np.ndarray], groups: np.ndarray | None = None) -> dict[str, Figure]:
    """The means of columns over the same draws, and `a - b` of the first and every other one."""
    stacked = np.stack(list(columns.values()), axis=1).astype(np.float64)
    resampled = resampled_means(stacked, groups, resamples=RESAMPLES)
    counts = np.count_nonzero(~np.isnan(stacked), axis=0)
    value = np.array(
        [np.nanmean(c) if n else np.nan for c, n in zip(stacked.T, counts, strict=True)]
    )
    found = {
        name: Figure.of(value[n], resampled[:, n], int(counts[n])) for n, name in enumerate(columns)
    }
    first, *others = columns
    for n, name in enumerate(others, 1):
        gap = resampled[:, 0] - resampled[:, n]
        found[f"{first} - {name}"] = Figure.of(value[0] - value[n], gap, int(counts[[0, n]].min()))
    return found


def draws(count: int, seed: int = 0) -> np.ndarray:
    """Resamples of so many items, int (resamples, count)."""
    return np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))


def half_width(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean of independent draws, by Student's t; NaN of one."""
    count = len(values)
    if count < 2:
        return float("nan")
    return float(t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count))


def statistic(
    of: Callable[[np.ndarray], float], groups: np.ndarray, resamples: int = RESAMPLES
) -> Figure:
    """Any statistic of items, by a function of the numbers of the items that count.

    Args:
        of: The statistic.
        groups: The group of each item, int (items,); those of one group are drawn together.
        resamples: Number of draws.
    """
    order = np.argsort(groups, kind="stable")
    sizes = np.unique(groups, return_counts=True)[1]
    members = np.split(order, np.cumsum(sizes)[:-1])
    drawn = draws(len(members))[:resamples]
    found = [of(np.concatenate([members[n] for n in some])) for some in drawn]
    return Figure.of(of(np.arange(len(groups))), np.array(found), len(groups))


def correlations(columns: Mapping[str, np.ndarray], target: np.ndarray) -> dict[str, Figure]:
    """Spearman correlations of columns with a target, over items where all are known.

    Args:
        columns: Columns (items,) by name. The first is also given with the others held fixed
            (partial correlation of ranks), as `<first>, others fixed`, and minus each other one.
        target: What they are correlated with (items,).
    """
    stacked = np.stack([*columns.values(), target])
    stacked = stacked[:, ~np.isnan(stacked).any(axis=0)]
    count = stacked.shape[1]
    if count < 4:
        return {}
    plain, partial = _rank_correlations(stacked[None])
    many = [
        _rank_correlations(stacked[:, part].swapaxes(0, 1))
        for part in np.array_split(draws(count), 20)
    ]
    drawn, drawn_partial = (np.concatenate([each[n] for each in many]) for n in (0, 1))
    first, *others = columns
    found = {name: Figure.of(plain[0, n], drawn[:, n], count) for n, name in enumerate(columns)}
    if others:
        found[f"{first}, others fixed"] = Figure.of(partial[0], drawn_partial, count)
    for n, name in enumerate(others, 1):
        value, gaps = plain[0, 0] - plain[0, n], drawn[:, 0] - drawn[:, n]
        found[f"{first} - {name}"] = Figure.of(value, gaps, count)
    return found


def _rank_correlations(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correlations of ranks of values (resamples, columns and target, items) with the target.

    Returns:
        Those of each column (resamples, columns), and the partial one of the first (resamples,).
    """
    ranks = rankdata(values, axis=2)
    ranks -= ranks.mean(axis=2, keepdims=True)
    ranks /= np.maximum(np.linalg.norm(ranks, axis=2, keepdims=True), 1e-12)
    together = ranks @ ranks.swapaxes(1, 2)
    inverse = np.linalg.pinv(together, hermitian=True)
    scale = np.sqrt(np.maximum(inverse[:, 0, 0] * inverse[:, -1, -1], 0))
    partial = np.divide(-inverse[:, 0, -1], scale, out=np.full(len(scale), np.nan), where=scale > 0)
    return together[:, :-1, -1], partial
