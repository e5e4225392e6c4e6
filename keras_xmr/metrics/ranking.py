"""Metrics of queries by the ranks of their relevant items, and their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from keras_xmr.metrics.rank_counting import Ranks

RECALL_AT = (1, 5, 10)
"""The K of the recalls that RSUM adds up, in both directions: another K changes RSUM."""
RELEVANT_AT = (5, 10)
"""The K of `relevant_K`, and by default of `precision_K`."""

NDCG_AT = (10,)


@dataclass(frozen=True, eq=False)
class QueryMetrics:
    """Metrics of every query; NaN for a query without relevant items.

    Attributes:
        values: An array (queries,) for each metric.
        positives: Number of relevant items per query, int64 (queries,).
        judged: Number of judged candidates per query, int64 (queries,), for metrics of condensed
            lists; None if every candidate was judged.
        chance: The mean over random rankings (queries,) of metrics that these counts do not
            determine, such as `ndcg_10`.
    """

    values: dict[str, np.ndarray]
    positives: np.ndarray
    judged: np.ndarray | None = None
    chance: dict[str, np.ndarray] = field(default_factory=dict)


def evaluate_direction(ranks: Ranks, precision_at: Sequence[int] = RELEVANT_AT) -> QueryMetrics:
    """Returns metrics of every query in one direction.

    * `recall_K`: 1 if a relevant item is among the first K, else 0.
    * `relevant_K`: the number of distinct relevant items among the first K.
    * `rank`: the best rank of a relevant item, from 1.
    * `r_precision`: the share of relevant items among the first R, where R is their number
      (Musgrave et al. 2020).
    * `map_at_r`: (1/R) sum over k <= R of [the k-th is relevant] * precision at k.
    * `precision_K`: the share of relevant items among the first K.
    * `ndcg_K`: see `ndcg_at`.
    * `bpref`: see `binary_preference`; only where some candidates were not judged.

    Ranks in condensed lists give the metrics of condensed lists (Sakai 2007); `recall_K` is then
    the success at K of Hodosh et al. 2013.

    Args:
        ranks: Ranks of the relevant items.
        precision_at: The K of `precision_K`.
    """
    counts = ranks.counts
    answered = counts > 0
    query, number = _queries_and_numbers(ranks)
    within = ranks.ranks <= counts[query]

    def total(weights: np.ndarray) -> np.ndarray:
        return np.bincount(query, weights, minlength=len(counts))

    best = best_ranks(ranks)
    values = {f"recall_{k}": np.where(answered, best <= k, np.nan) for k in RECALL_AT}
    values |= {
        "rank": best,
        "r_precision": _quotient(total(within), counts),
        "map_at_r": _quotient(total(within * number / ranks.ranks), counts),
    }
    for k in sorted({*RELEVANT_AT, *precision_at}):
        relevant = np.where(answered, total(ranks.ranks <= k), np.nan)
        values |= {f"relevant_{k}": relevant} if k in RELEVANT_AT else {}
        values |= {f"precision_{k}": relevant / k} if k in precision_at else {}
    values |= {f"ndcg_{k}": ndcg_at(ranks, k) for k in NDCG_AT}
    chance = {f"ndcg_{k}": chance_of_ndcg(ranks, k) for k in NDCG_AT}
    if ranks.fully_judged:
        return QueryMetrics(values, counts, chance=chance)
    values["bpref"] = binary_preference(ranks)
    return QueryMetrics(values, counts, ranks.candidates, chance)


def best_ranks(ranks: Ranks) -> np.ndarray:
    """Returns the best rank of a relevant item, of every query (queries,); NaN without one."""
    answered = ranks.counts > 0
    best = np.full(len(answered), np.nan)
    best[answered] = ranks.ranks[ranks.starts[:-1][answered]]
    return best


def ndcg_at(ranks: Ranks, k: int) -> np.ndarray:
    """Computes normalized discounted cumulative gain of the first K answers, of every query
    (queries,).

    The gain of an answer is its grade and its discount log2(1 + rank), both as in `ndcg_cut` of
    trec_eval: the gain is linear, not 2^grade - 1 (Jarvelin and Kekalainen 2002, with the discount
    of Burges et al. 2005, which reaches the first two ranks too).

    Args:
        ranks: Ranks of the relevant items.
        k: The number of answers that count.

    Returns:
        Fractions; NaN for a query without relevant items.
    """
    query, _ = _queries_and_numbers(ranks)
    gains = np.where(ranks.ranks <= k, ranks.grades / np.log2(1.0 + ranks.ranks), 0)
    return _quotient(np.bincount(query, gains, minlength=len(ranks.counts)), _ideal_gain(ranks, k))


def chance_of_ndcg(ranks: Ranks, k: int) -> np.ndarray:
    """Returns the mean of `ndcg_at` over random rankings: every rank has the mean grade
    (queries,).
    """
    query, _ = _queries_and_numbers(ranks)
    grades = np.bincount(query, ranks.grades, minlength=len(ranks.counts))
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(2.0 + np.arange(k)))])
    mean = grades / np.maximum(ranks.candidates, 1)
    return _quotient(mean * discounts[np.minimum(ranks.candidates, k)], _ideal_gain(ranks, k))


def _ideal_gain(ranks: Ranks, k: int) -> np.ndarray:
    """Returns the discounted gain of the first K if the highest grades come first (queries,)."""
    query, number = _queries_and_numbers(ranks)
    grades = ranks.grades[np.lexsort((-ranks.grades, query))]
    gains = np.where(number <= k, grades / np.log2(1.0 + number), 0)
    return np.bincount(query, gains, minlength=len(ranks.counts))


def _quotient(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Returns a quotient; NaN where its divisor is 0."""
    return np.divide(values, of, out=np.full(len(of), np.nan), where=of > 0)


def binary_preference(ranks: Ranks) -> np.ndarray:
    """Computes bpref of every query (queries,): the rarity of wrong answers before relevant items.

    (1/R) sum over relevant items of 1 - min(n, R) / min(N, R), where n wrong answers come before
    it, of N judged ones. This is bpref of trec_eval since its version 8; the one that Buckley and
    Voorhees 2004 print divides by R where N is smaller than R, and their bpref-10 by R + 10.

    Args:
        ranks: Ranks of the relevant items.

    Returns:
        Fractions; NaN for a query without relevant items.
    """
    query, number = _queries_and_numbers(ranks)
    right = ranks.counts
    most = np.minimum(ranks.candidates - right, right)[query]
    before = np.minimum(ranks.ranks - number, right[query])
    preferred = 1 - np.divide(before, most, out=np.zeros(len(query)), where=most > 0)
    return _quotient(np.bincount(query, preferred, minlength=len(right)), right)


def _queries_and_numbers(ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """Returns the query of each relevant item, and its number within the query, from 1."""
    query = np.repeat(np.arange(len(ranks.counts)), ranks.counts)
    return query, np.arange(len(query)) - np.repeat(ranks.starts[:-1], ranks.counts) + 1


def summarize(metrics: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns means of metrics over the queries that have a value, and the median of ranks too.

    `median_rank` is the floor of the median of ranks, as in the released codes; `mean_rank` is
    their mean.
    """
    summary = {}
    for name, values in metrics.items():
        known = values[~np.isnan(values)]
        if not len(known):
            continue
        if name == "rank":
            summary["median_rank"] = float(np.floor(np.median(known)))
            summary["mean_rank"] = float(known.mean())
        else:
            summary[name] = float(known.mean())
    return summary
