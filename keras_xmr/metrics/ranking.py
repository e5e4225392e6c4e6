"""Ranks of the relevant items, and the metrics that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.score_matrices import Place, ScoreMatrices, ScoreTiles, place_in
from keras_xmr.utils.processors import in_threads
from keras_xmr.utils.vectors import chunks

_ROWS = 256

RECALL_AT = (1, 5, 10)
"""The K of the recalls that RSUM adds up, in both directions: another K changes RSUM."""
RELEVANT_AT = (5, 10)
"""The K of `relevant_K`, and by default of `precision_K`."""

NDCG_AT = (10,)


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of the relevant items of each query.

    Attributes:
        ranks: Ranks of the relevant items of all queries, from 1, ascending within a query:
            int64 (relevant items,).
        starts: The index of the first of each query: int64 (queries + 1,).
        grades: Grades of the relevant items, float32 (relevant items,).
        candidates: Number of judged candidates per query, int64 (queries,).
        fully_judged: Whether every candidate was judged; otherwise ranks are among those that were.
    """

    ranks: np.ndarray
    starts: np.ndarray
    grades: np.ndarray
    candidates: np.ndarray
    fully_judged: bool = True

    @property
    def counts(self) -> np.ndarray:
        """Number of relevant items per query, int64 (queries,)."""
        return np.diff(self.starts)


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


def positive_ranks(scores: np.ndarray, judgements: Judgements) -> Ranks:
    """Ranks every relevant item of every query.

    The rank of an answer is one more than the number of candidates before it: those with a
    higher score, wrong ones with the same score, and relevant ones with the same score that have
    been counted already, of which those with a lower grade come first. Candidates that were not
    judged do not count: the list is condensed to the judged ones (Sakai 2007).

    Args:
        scores: Scores (queries, candidates): an array, a transposed one, or a memory map. It
            is read in blocks of rows.
        judgements: Relevant candidates of each query, of the same shape.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    if scores.shape != judgements.shape:
        raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
    queries, candidates = map(np.arange, scores.shape)
    rows, blocks = list(chunks(queries, _ROWS)), list(chunks(scores, _ROWS))
    counter = RankCounter(judgements, rows, [candidates])

    def count(row: int) -> None:
        block = np.ascontiguousarray(blocks[row])
        block = block if block.dtype.kind == "f" else block.astype(np.float64)
        refuse_nan(block, "score", rows[row])
        counter.add_tile(row, 0, block)

    for row, block in enumerate(blocks):
        counter.add_positives(row, 0, block)
    counter.freeze()
    in_threads(count, len(rows), 1)
    return counter.ranks()


def refuse_nan(values: np.ndarray, name: str, queries: np.ndarray | range) -> None:
    """Checks a block of values (queries, candidates).

    Args:
        values: The block.
        name: The name of the values, for the message.
        queries: The numbers of its queries.

    Raises:
        ValueError: If a value is NaN.
    """
    # NaN makes the sum NaN, and costs no array; the sum of infinities is NaN too.
    if np.isnan(np.einsum("ij->", values)) and (nan := np.isnan(values).any(axis=1)).any():
        raise ValueError(f"a {name} of query {queries[int(nan.argmax())]} is NaN")


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


# With more relevant items of a query than this, sorting a tile is faster than comparing.
_COMPARED = 16


class RankCounter:
    """Counts the ranks of the relevant items of one direction, tile by tile.

    The rank of an item is 1 + the number of candidates that score as high and come before it. So
    the scores of all relevant items are needed first. Order of calls: `add_positives` with each
    tile of `places`, `freeze`, `add_tile` with every tile, `ranks`.

    Args:
        judgements: Relevant candidates of each query, (queries, candidates).
        queries: The numbers of the queries of each row of tiles.
        candidates: The numbers of the candidates of each column of tiles.
    """

    def __init__(
        self,
        judgements: Judgements,
        queries: Sequence[np.ndarray],
        candidates: Sequence[np.ndarray],
    ) -> None:
        relevant = judgements.queries()
        self._judgements = judgements
        self._queries, self._candidates = queries, candidates
        self._starts, self._grades = relevant.indptr.astype(np.int64), relevant.data
        self._query = np.repeat(np.arange(relevant.shape[0]), np.diff(self._starts))
        (row, place), (column, place_2) = place_in(queries), place_in(candidates)
        tile = row[self._query] * len(candidates) + column[relevant.indices]
        self._order = np.argsort(tile, kind="stable")
        self._tile = tile[self._order]
        self._inside = place[self._query][self._order], place_2[relevant.indices][self._order]
        self._scores = np.empty(len(tile))
        self._ahead = np.zeros(len(tile), np.int64)

    def places(self) -> list[Place]:
        """Returns the tiles that have the scores of relevant items."""
        rows, columns = np.divmod(np.unique(self._tile), len(self._candidates))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def add_positives(self, row: int, column: int, scores: np.ndarray) -> None:
        """Takes the scores of the relevant items of a tile."""
        tile = row * len(self._candidates) + column
        chosen = slice(*np.searchsorted(self._tile, (tile, tile + 1)))
        queries, candidates = (places[chosen] for places in self._inside)
        self._scores[self._order[chosen]] = scores[queries, candidates]

    def freeze(self) -> None:
        """Ends `add_positives`: the scores of all relevant items are known."""
        order = np.lexsort((-self._grades, self._scores, self._query))
        self._scores, self._grades = self._scores[order], self._grades[order]

    def add_tile(self, row: int, column: int, scores: np.ndarray) -> None:
        """Counts the candidates of a tile (queries, candidates) that score as high."""
        queries, candidates = self._queries[row], self._candidates[column]
        answered = self._starts[queries + 1] > self._starts[queries]
        if not answered.all():
            queries, scores = queries[answered], scores[answered]
        begins = self._starts[queries]
        counts = self._starts[queries + 1] - begins
        known = np.arange(counts.max(initial=0)) < counts[:, None]
        relevant = (begins[:, None] + np.arange(known.shape[1]))[known]
        least = np.full(known.shape, np.inf, scores.dtype)
        least[known] = self._scores[relevant]
        judged: Any = self._judgements.judged
        if judged is not None:
            judged = judged[queries][:, candidates].toarray()
        self._ahead[relevant] += _at_least(scores, least, judged)[known]

    def ranks(self) -> Ranks:
        """Returns the ranks, once all tiles are counted, as `positive_ranks` does."""
        number = np.arange(len(self._scores))
        starts, ends = self._starts[:-1][self._query], self._starts[1:][self._query]
        tied = (self._scores[1:] == self._scores[:-1]) & (self._query[1:] == self._query[:-1])
        first = np.where(np.concatenate([[False], tied])[: len(number)], 0, number)
        first_of_ties = np.maximum.accumulate(first)
        # Scores ascend within a query. For 0.5 and 0.9 of relevant items and 0.7 of a wrong one,
        # `_ahead` is 3 and 1, of which 2 and 1 are relevant: 1 and 0 wrong ones, ranks 3 and 1.
        wrong_before = self._ahead - (ends - first_of_ties)
        place = ends - number  # Among the relevant items of the query, from 1.
        ranks, grades = np.empty_like(self._ahead), np.empty(len(number), np.float32)
        ranks[starts + place - 1] = wrong_before + place
        grades[starts + place - 1] = self._grades
        candidates = self._judgements.candidate_counts()
        return Ranks(ranks, self._starts, grades, candidates, self._judgements.fully_judged)


def count_ranks(
    scores: ScoreMatrices, relations: Iterable[Judgements]
) -> list[tuple[Ranks, Ranks]]:
    """Ranks the relevant items of several relations in both directions.

    Scores in tiles are ranked tile by tile: those that have relevant items are computed twice, all
    others once.

    Args:
        scores: Scores (images, captions).
        relations: The judgements.

    Returns:
        The ranks of each relation with images as queries, and with captions.

    Raises:
        ValueError: If shapes differ, or a score is NaN.
    """
    if scores.is_dense:
        by_image, by_caption = scores.by_query
        return [
            (positive_ranks(by_image, right), positive_ranks(by_caption, right.transpose()))
            for right in relations
        ]
    rows, columns = scores.tiles()
    i2t, t2i = [], []
    for judgements in relations:
        if scores.shape != judgements.shape:
            raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
        i2t.append(RankCounter(judgements, rows.images, rows.captions))
        t2i.append(RankCounter(judgements.transpose(), columns.captions, columns.images))
    if rows is columns:
        _count(rows, i2t, t2i)
    else:
        _count(rows, i2t, [])
        _count(columns, [], t2i)
    return [(left.ranks(), right.ranks()) for left, right in zip(i2t, t2i, strict=True)]


def _count(tiles: ScoreTiles, i2t: Sequence[RankCounter], t2i: Sequence[RankCounter]) -> None:
    """Counts in the tiles of one matrix."""

    def add_positives(row: int, column: int, scores: np.ndarray) -> None:
        for counter in i2t:
            counter.add_positives(row, column, scores)
        for counter in t2i:
            counter.add_positives(column, row, scores.T)

    def add_tile(row: int, column: int, scores: np.ndarray) -> None:
        refuse_nan(scores, "score", tiles.images[row])
        for counter in i2t:
            counter.add_tile(row, column, scores)
        for counter in t2i:
            counter.add_tile(column, row, scores.T)

    places = {place for counter in i2t for place in counter.places()}
    places |= {(row, column) for counter in t2i for column, row in counter.places()}
    tiles.for_each(add_positives, sorted(places), "scoring relevant items")
    for counter in (*i2t, *t2i):
        counter.freeze()
    tiles.for_each(add_tile, tiles.places(), "ranking")


def _at_least(scores: np.ndarray, least: np.ndarray, judged: np.ndarray | None) -> np.ndarray:
    """Counts the judged scores (queries, candidates) that reach each of `least` (queries, R)."""
    if judged is not None:
        scores = np.where(judged, scores, scores.dtype.type(-np.inf))
    if least.shape[1] <= _COMPARED:
        counts = np.empty(least.shape, np.int64)
        for number in range(least.shape[1]):
            reach = scores >= least[:, number, None]
            counts[:, number] = np.add.reduce(reach.view(np.uint8), axis=1, dtype=np.int32)
    else:
        ordered = np.sort(scores, axis=1)
        below = [np.searchsorted(row, values) for row, values in zip(ordered, least, strict=True)]
        counts = scores.shape[1] - np.stack(below)
    # Infinitely low scores are reached by those that were not judged, too.
    return counts if judged is None else np.minimum(counts, judged.sum(axis=1, keepdims=True))
