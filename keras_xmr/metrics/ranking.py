"""Ranks of the right answers, and the metrics that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.threads import in_threads

_ROWS = 256

RECALL_AT = (1, 5, 10)
FOUND_AT = (5, 10)
PRECISION_AT = (5, 10)


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where the right answers of each query stand.

    Attributes:
        ranks: Ranks of the right answers of all queries, from 1, ascending within a query:
            int64 (right answers,).
        starts: Where those of each query begin: int64 (queries + 1,).
    """

    ranks: np.ndarray
    starts: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """How many right answers each query has, int64 (queries,)."""
        return np.diff(self.starts)

    def select(self, queries: np.ndarray) -> Ranks:
        """The ranks of some queries, in their order."""
        counts = self.counts[queries]
        starts = np.concatenate([[0], np.cumsum(counts)])
        moved = np.repeat(self.starts[queries] - starts[:-1], counts)
        return Ranks(self.ranks[np.arange(starts[-1]) + moved], starts)


@dataclass(frozen=True, eq=False)
class QueryMetrics:
    """Metrics of every query; NaN for a query without right answers.

    Attributes:
        values: An array (queries,) for each metric.
        positives: How many right answers each query has, int64 (queries,).
    """

    values: dict[str, np.ndarray]
    positives: np.ndarray


def positive_ranks(scores: np.ndarray, judgements: Judgements) -> Ranks:
    """Ranks every right answer of every query.

    The rank of an answer is one more than the number of candidates before it: those with a
    higher score, wrong ones with the same score, and right ones with the same score that have
    been counted already.

    Args:
        scores: Scores (queries, candidates): an array, a transposed one, or a memory map. It
            is read in blocks of rows.
        judgements: Right candidates of each query, of the same shape.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    if scores.shape != judgements.shape:
        raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
    queries = judgements.queries()
    starts, columns = queries.indptr.astype(np.int64), queries.indices
    ranks = np.empty(len(columns), np.int64)

    def rank_rows(first: int) -> None:
        block = np.ascontiguousarray(scores[first : first + _ROWS])
        in_order = np.sort(block, axis=1)
        if np.isnan(in_order[:, -1]).any():
            row = first + int(np.isnan(in_order[:, -1]).argmax())
            raise ValueError(f"a score of query {row} is NaN")
        for row, (values, ordered) in enumerate(zip(block, in_order, strict=True), first):
            own = slice(starts[row], starts[row + 1])
            right = np.sort(values[columns[own]])
            # At least as high: all candidates, and the right ones among them.
            everyone = len(ordered) - np.searchsorted(ordered, right, side="left")
            right_ones = len(right) - np.searchsorted(right, right, side="left")
            place = np.arange(len(right), 0, -1)
            ranks[own] = (everyone - right_ones + place)[::-1]

    in_threads(rank_rows, len(scores), _ROWS)
    return Ranks(ranks, starts)


def evaluate_direction(ranks: Ranks, precision_at: Sequence[int] = ()) -> QueryMetrics:
    """Metrics of every query in one direction.

    * `recall_K`: 1 if a right answer is among the first K, else 0.
    * `found_K`: how many different right answers are among the first K.
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
    for k in sorted({*FOUND_AT, *precision_at}):
        found = np.where(answered, total(ranks.ranks <= k), np.nan)
        values |= {f"found_{k}": found} if k in FOUND_AT else {}
        values |= {f"precision_{k}": found / k} if k in precision_at else {}
    return QueryMetrics(values, counts)


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
