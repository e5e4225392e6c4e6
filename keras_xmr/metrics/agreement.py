"""Agreement between raters."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from keras_xmr.judgements.relation import as_array
from keras_xmr.utils.errors import ArgumentError

Level = Literal["nominal", "ordinal", "interval"]

_COUNTS = "counts are a matrix (items, values) of numbers"


def krippendorff_alpha(ratings: np.ndarray, level: Level = "ordinal") -> float:
    """Krippendorff's alpha (Krippendorff 2004, Ch. 11): 1 is perfect, 0 that of chance.

    Args:
        ratings: The rating of each item by each rater, float (items, raters); NaN if missing.
        level: The distance of two ratings: equal for any two ("nominal"), by the number of ratings
            between them ("ordinal"), or their squared difference ("interval").

    Returns:
        Alpha; NaN if no two ratings of an item can be compared, or all ratings are equal.

    Raises:
        ArgumentError: If the ratings are not a matrix of numbers, or the level is unknown.
    """
    ratings = _matrix(ratings, "ratings are a matrix (items, raters) of numbers")
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[..., None] == values).sum(axis=1)
    return alpha_of_counts(counts, values, level)


def alpha_of_counts(
    counts: np.ndarray, values: np.ndarray | None = None, level: Level = "nominal"
) -> float:
    """Krippendorff's alpha of the number of raters per value.

    Args:
        counts: The number of raters of each item that gave each value, int (items, values).
        values: The values themselves, for the level "interval".
        level: See `krippendorff_alpha`.

    Raises:
        ArgumentError: If the counts are not a matrix of numbers, or the level is unknown.
    """
    counts = _matrix(counts, _COUNTS)
    if level not in get_args(Level):
        raise ArgumentError(f"the levels are {', '.join(get_args(Level))}, not {level!r}")
    counts = counts[counts.sum(axis=1) > 1].astype(np.float64)
    sizes = counts.sum(axis=1)
    weighted = counts / np.maximum(sizes - 1, 1)[:, None]
    together = weighted.T @ counts - np.diag(weighted.sum(axis=0))
    totals = counts.sum(axis=0)
    apart = _distances(totals, np.arange(len(totals)) if values is None else values, level)
    expected = (np.outer(totals, totals) * apart).sum()
    if not expected:
        return np.nan
    return float(1 - (totals.sum() - 1) * (together * apart).sum() / expected)


def _matrix(given: Any, says: str) -> np.ndarray:
    matrix = as_array(given, says)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ArgumentError(f"{says}, not {matrix.dtype} of shape {matrix.shape}")
    return matrix


def _distances(totals: np.ndarray, values: np.ndarray, level: Level) -> np.ndarray:
    """The squared distances of values, of which there are `totals`: (values, values)."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
    if level == "interval":
        places = np.asarray(values, np.float64)
    else:
        places = np.cumsum(totals) - totals / 2
    return np.subtract.outer(places, places) ** 2


def weighted_kappa(
    left: np.ndarray,
    right: np.ndarray,
    weights: Literal["none", "linear", "quadratic"] = "quadratic",
) -> float:
    """Kappa of two raters (Cohen 1960 and 1968): 1 is perfect, 0 that of chance.

    Args:
        left: The ratings of the first, whole numbers (items,).
        right: The ratings of the second.
        weights: The disagreement of two ratings: equal for any two, their difference, or its
            square.

    Returns:
        Kappa; NaN if all ratings are equal.

    Raises:
        ArgumentError: If these are not two ratings of each item, or the weights are unknown.
    """
    left, right = as_array(left, "left"), as_array(right, "right")
    kinds = {left.dtype.kind, right.dtype.kind}
    if left.ndim != 1 or left.shape != right.shape or kinds - {*"biuf"}:
        raise ArgumentError(
            "two raters give each item a whole number, but these are "
            f"{left.dtype} of shape {left.shape} and {right.dtype} of shape {right.shape}"
        )
    if weights not in (known := {"none": 0, "linear": 1, "quadratic": 2}):
        raise ArgumentError(f"the weights are {', '.join(known)}, not {weights!r}")
    values = np.unique(np.concatenate([left, right]))
    apart = np.abs(np.subtract.outer(values, values)).astype(np.float64)
    apart = (apart > 0) * apart ** known[weights]
    a, b = np.searchsorted(values, left), np.searchsorted(values, right)
    counts = [np.bincount(ratings, minlength=len(values)) / len(ratings) for ratings in (a, b)]
    expected = (np.outer(*counts) * apart).sum()
    return float(1 - apart[a, b].mean() / expected) if expected else np.nan


def pairwise_agreement(counts: np.ndarray) -> float:
    """The share of pairs of raters of an item that gave the same value, over all items.

    Args:
        counts: The number of raters of each item that gave each value, int (items, values).

    Raises:
        ArgumentError: If the counts are not a matrix of numbers.
    """
    counts = _matrix(counts, _COUNTS).astype(np.float64)
    sizes = counts.sum(axis=1)
    pairs = (sizes * (sizes - 1)).sum()
    return float((counts * (counts - 1)).sum() / pairs) if pairs else np.nan
