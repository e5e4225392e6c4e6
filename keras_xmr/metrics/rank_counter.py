"""Ranks of relevant items by counting, tile by tile: memory follows the relevant items.

The scores of the relevant items come first; then every tile adds the number of its candidates that
score as high. The ranks equal those of `positive_ranks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.ranking import Ranks, refuse_nan
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.metrics.score_tiles import Place, ScoreTiles, place_in

# With more relevant items of a query than this, sorting a tile is faster than comparing.
_COMPARED = 16


class RankCounter:
    """Counts the ranks of the relevant items of one direction.

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
        """The tiles that have the scores of relevant items."""
        rows, columns = np.divmod(np.unique(self._tile), len(self._candidates))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def note(self, row: int, column: int, scores: np.ndarray) -> None:
        """Takes the scores of the relevant items of a tile."""
        tile = row * len(self._candidates) + column
        chosen = slice(*np.searchsorted(self._tile, (tile, tile + 1)))
        queries, candidates = (places[chosen] for places in self._inside)
        self._scores[self._order[chosen]] = scores[queries, candidates]

    def settle(self) -> None:
        """Ends `note`: the scores of all relevant items are known."""
        order = np.lexsort((-self._grades, self._scores, self._query))
        self._scores, self._grades = self._scores[order], self._grades[order]

    def count(self, row: int, column: int, scores: np.ndarray) -> None:
        """Counts the candidates of a tile (queries, candidates) that score as high."""
        queries, candidates = self._queries[row], self._candidates[column]
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
        """The ranks, once all tiles are counted, equal to those of `positive_ranks`."""
        number = np.arange(len(self._scores))
        ends = self._starts[1:][self._query]
        tied = (self._scores[1:] == self._scores[:-1]) & (self._query[1:] == self._query[:-1])
        first = np.where(np.concatenate([[False], tied])[: len(number)], 0, number)
        # Of relevant items with one score, the first counts all, and the others one less each.
        equal = ends - np.maximum.accumulate(first)
        ranks, grades = np.empty_like(self._ahead), np.empty(len(number), np.float32)
        backwards = self._starts[:-1][self._query] + ends - 1 - number
        ranks[backwards] = self._ahead - equal + ends - number
        grades[backwards] = self._grades
        candidates = self._judgements.candidate_counts()
        return Ranks(ranks, self._starts, grades, candidates, self._judgements.fully_judged)


def count_ranks(
    scores: ScoreMatrices, relations: Iterable[Judgements]
) -> list[tuple[Ranks, Ranks]]:
    """Ranks the relevant items of several relations in both directions, tile by tile.

    The tiles that have relevant items are computed twice, all others once.

    Args:
        scores: Scores (images, captions) in tiles.
        relations: The judgements.

    Returns:
        The ranks of each relation with images as queries, and with captions.

    Raises:
        ValueError: If shapes differ, or a score is NaN.
    """
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

    def note(row: int, column: int, scores: np.ndarray) -> None:
        for counter in i2t:
            counter.note(row, column, scores)
        for counter in t2i:
            counter.note(column, row, scores.T)

    def count(row: int, column: int, scores: np.ndarray) -> None:
        refuse_nan(scores, "score", tiles.images[row])
        for counter in i2t:
            counter.count(row, column, scores)
        for counter in t2i:
            counter.count(column, row, scores.T)

    places = {place for counter in i2t for place in counter.places()}
    places |= {(row, column) for counter in t2i for column, row in counter.places()}
    tiles.for_each(note, sorted(places), "scoring relevant items")
    for counter in (*i2t, *t2i):
        counter.settle()
    tiles.for_each(count, tiles.places(), "ranking")


def _at_least(scores: np.ndarray, least: np.ndarray, judged: np.ndarray | None) -> np.ndarray:
    """Counts the judged scores (queries, candidates) that reach each of `least` (queries, R)."""
    if least.shape[1] <= _COMPARED or judged is not None:
        counts = np.empty(least.shape, np.int64)
        for number in range(least.shape[1]):
            reach = scores >= least[:, number, None]
            if judged is not None:
                reach &= judged
            counts[:, number] = np.add.reduce(reach.view(np.uint8), axis=1, dtype=np.int32)
        return counts
    ordered = np.sort(scores, axis=1)
    below = [np.searchsorted(row, values) for row, values in zip(ordered, least, strict=True)]
    return scores.shape[1] - np.stack(below)
