"""Ranks of the right answers, and the metrics that follow from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keras_xmr.judgements import Judgements

_ROWS = 256

RECALL_AT = (1, 5, 10)


@dataclass(frozen=True)
class Ranks:
    """Where the right answers of each query stand.

    Attributes:
        ranks: Ranks of the right answers of all queries, from 1, ascending within a query:
            int64 (right answers,).
        starts: Where those of each query begin: int64 (queries + 1,).
        gallery: How many candidates there are.
    """

    ranks: np.ndarray
    starts: np.ndarray
    gallery: int

    @property
    def counts(self) -> np.ndarray:
        """How many right answers each query has, int64 (queries,)."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class QueryMetrics:
    """Metrics of every query; NaN for a query without right answers.

    Attributes:
        values: An array (queries,) for each metric.
    """

    values: dict[str, np.ndarray]


def positive_ranks(scores: np.ndarray, judgements: Judgements) -> Ranks:
    """Ranks every right answer of every query.

    The rank of an answer is one more than the number of candidates before it: those with a
    higher score, wrong ones with the same score, and right ones with the same score that have
    been counted already.

    Args:
        scores: Scores (queries, candidates).
        judgements: Right candidates of each query, of the same shape.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    if scores.shape != judgements.shape:
        raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
    starts = judgements.grades.indptr.astype(np.int64)
    columns = judgements.grades.indices
    ranks = np.empty(len(columns), np.int64)

    def rank_rows(first: int) -> None:
        block = np.sort(scores[first : first + _ROWS], axis=1)
        if np.isnan(block[:, -1]).any():
            row = first + int(np.isnan(block[:, -1]).argmax())
            raise ValueError(f"a score of query {row} is NaN")
        for row, ordered in enumerate(block, first):
            own = slice(starts[row], starts[row + 1])
            right = np.sort(scores[row, columns[own]])
            # At least as high: all candidates, and the right ones among them.
            everyone = len(ordered) - np.searchsorted(ordered, right, side="left")
            right_ones = len(right) - np.searchsorted(right, right, side="left")
            place = np.arange(len(right), 0, -1)
            ranks[own] = (everyone - right_ones + place)[::-1]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(rank_rows, range(0, len(scores), _ROWS)))
    return Ranks(ranks, starts, scores.shape[1])


def evaluate_direction(ranks: Ranks, precision_at: Sequence[int] = ()) -> QueryMetrics:
    """Metrics of every query in one direction.

    * `recall_K`: 1 if a right answer is among the first K, else 0.
    * `rank`: the best rank of a right answer, from 1.
    * `r_precision`: the part of right answers among the first R, where R is how many there are
      (Musgrave et al. 2020).
    * `map_at_r`: (1/R) sum over k <= R of [the k-th is right] * precision at k.
    * `precision_K`: the part of right answers among the first K.

    Args:
        ranks: Ranks of the right answers.
        precision_at: The K of `precision_K`.
    """
    counts = ranks.counts
    answered = counts > 0
    query = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(query)) - np.repeat(ranks.starts[:-1], counts) + 1
    within = ranks.ranks <= counts[query]

    def total(weights: np.ndarray) -> np.ndarray:
        return np.bincount(query, weights, minlength=len(counts))

    def share(sums: np.ndarray) -> np.ndarray:
        return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=answered)

    best = np.full(len(counts), np.nan)
    best[answered] = ranks.ranks[ranks.starts[:-1][answered]]
    values = {f"recall_{k}": np.where(answered, best <= k, np.nan) for k in RECALL_AT}
    values |= {
        "rank": best,
        "r_precision": share(total(within)),
        "map_at_r": share(total(within * number / ranks.ranks)),
    }
    for k in precision_at:
        values[f"precision_{k}"] = np.where(answered, total(ranks.ranks <= k) / k, np.nan)
    return QueryMetrics(values)


def summarize(queries: QueryMetrics) -> dict[str, float]:
    """Means over the queries that have right answers, and of the ranks also the median.

    `median_rank` is the floor of the median of ranks, as in the released codes; `mean_rank` is
    their mean.
    """
    summary = {}
    for name, values in queries.values.items():
        known = values[~np.isnan(values)]
        if not len(known):
            continue
        if name == "rank":
            summary["median_rank"] = float(np.floor(np.median(known)))
            summary["mean_rank"] = float(known.mean())
        else:
            summary[name] = float(known.mean())
    return summary
