"""Ranks of right answers by counting, tile by tile: memory follows the right answers.

The scores of the right answers come first; then every tile adds how many of its candidates score
as high. The ranks are those of `positive_ranks`, to the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.ranking import Ranks
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.metrics.score_tiles import Place, ScoreTiles, place_in

# With more right answers of a query than this, sorting a tile is faster than comparing.
_COMPARED = 16

Groups = tuple[np.ndarray, np.ndarray]
"""A number for each image and each caption: a query ranks the candidates with its own number."""


class RankCounter:
    """Counts the ranks of the right answers of one direction.

    Args:
        judgements: Right candidates of each query, (queries, candidates).
        queries: The numbers of the queries of each row of tiles.
        candidates: The numbers of the candidates of each column of tiles.
        groups: Of each query and each candidate, where a query ranks its own group alone.
    """

    def __init__(
        self,
        judgements: Judgements,
        queries: Sequence[np.ndarray],
        candidates: Sequence[np.ndarray],
        groups: Groups | None = None,
    ) -> None:
        right = judgements.queries()
        query = np.repeat(np.arange(right.shape[0]), np.diff(right.indptr))
        candidate, grades = right.indices, right.data
        if groups is not None:
            same = groups[0][query] == groups[1][candidate]
            query, candidate, grades = query[same], candidate[same], grades[same]
        self._queries, self._candidates, self._groups = queries, candidates, groups
        self._query = query
        self._grades = grades
        self._judgements, self._judged = judgements, judgements.judged
        self._starts = np.searchsorted(query, np.arange(right.shape[0] + 1))
        (row, place), (column, place_2) = place_in(queries), place_in(candidates)
        tile = row[query] * len(candidates) + column[candidate]
        self._order = np.argsort(tile, kind="stable")
        self._tile = tile[self._order]
        self._inside = place[query][self._order], place_2[candidate][self._order]
        self._own = np.empty(len(query))
        self._ahead = np.zeros(len(query), np.int64)

    def places(self) -> list[Place]:
        """The tiles that have the scores of right answers."""
        rows, columns = np.divmod(np.unique(self._tile), len(self._candidates))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def note(self, row: int, column: int, scores: np.ndarray) -> None:
        """Takes the scores of the right answers of a tile."""
        tile = row * len(self._candidates) + column
        chosen = slice(*np.searchsorted(self._tile, (tile, tile + 1)))
        queries, candidates = (places[chosen] for places in self._inside)
        self._own[self._order[chosen]] = scores[queries, candidates]

    def settle(self) -> None:
        """Ends `note`; the scores of every right answer are known."""
        order = np.lexsort((-self._grades, self._own, self._query))
        self._own, self._grades = self._own[order], self._grades[order]

    def count(self, row: int, column: int, scores: np.ndarray) -> None:
        """Counts the candidates of a tile (queries, candidates) that score as high."""
        queries, candidates = self._queries[row], self._candidates[column]
        if self._groups is None:
            self._count(queries, candidates, scores)
            return
        of_query, of_candidate = self._groups[0][queries], self._groups[1][candidates]
        for group in np.intersect1d(of_query, of_candidate):
            own = np.ix_(of_query == group, of_candidate == group)
            self._count(queries[own[0].ravel()], candidates[own[1].ravel()], scores[own])

    def _count(self, queries: np.ndarray, candidates: np.ndarray, scores: np.ndarray) -> None:
        begins = self._starts[queries]
        counts = self._starts[queries + 1] - begins
        known = np.arange(counts.max(initial=0)) < counts[:, None]
        right = (begins[:, None] + np.arange(known.shape[1]))[known]
        least = np.full(known.shape, np.inf, scores.dtype)
        least[known] = self._own[right]
        judged = self._judged
        if judged is not None:
            judged = judged[queries][:, candidates].toarray()
        self._ahead[right] += _at_least(scores, least, judged)[known]

    def ranks(self) -> Ranks:
        """The ranks, once all tiles are counted; as `positive_ranks` gives them."""
        number = np.arange(len(self._own))
        ends = self._starts[1:][self._query]
        tied = (self._own[1:] == self._own[:-1]) & (self._query[1:] == self._query[:-1])
        first = np.where(np.concatenate([[False], tied])[: len(number)], 0, number)
        # Of right answers with one score, the first counts them all and the others one less each.
        right_ones = ends - np.maximum.accumulate(first)
        ranks = np.empty_like(self._ahead)
        backwards = self._starts[:-1][self._query] + ends - 1 - number
        ranks[backwards] = self._ahead - right_ones + ends - number
        grades = np.empty(len(ranks), np.float32)
        grades[backwards] = self._grades
        candidates, fully_judged = self._candidate_counts(), self._judged is None
        return Ranks(ranks, self._starts, grades, candidates, fully_judged)

    def _candidate_counts(self) -> np.ndarray:
        """How many candidates of its own group were judged for each query."""
        counts = self._judgements.candidate_counts()
        if self._groups is None:
            return counts
        if self._judged is None:
            sizes = np.bincount(self._groups[1], minlength=1 + self._groups[0].max(initial=0))
            return sizes[self._groups[0]]
        query = np.repeat(np.arange(len(counts)), counts)
        same = self._groups[0][query] == self._groups[1][self._judged.indices]
        return np.bincount(query[same], minlength=len(counts))


def count_ranks(
    scores: ScoreMatrices, relations: Iterable[tuple[Judgements, Groups | None]]
) -> list[tuple[Ranks, Ranks]]:
    """Ranks the right answers of several relations in both directions, tile by tile.

    The tiles that have right answers are computed twice, all others once.

    Args:
        scores: Scores (images, captions) in tiles.
        relations: What is right; and groups of the images and captions, if a query ranks its own
            group alone, as in a fold.

    Returns:
        The ranks of each relation with images as queries, and with captions.

    Raises:
        ValueError: If shapes differ, or a score is NaN.
    """
    rows, columns = scores.tiles()
    i2t, t2i = [], []
    for judgements, groups in relations:
        if scores.shape != judgements.shape:
            raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
        i2t.append(RankCounter(judgements, rows.images, rows.captions, groups))
        turned = None if groups is None else (groups[1], groups[0])
        back = judgements.transpose()
        t2i.append(RankCounter(back, columns.captions, columns.images, turned))
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
        _refuse_nan(scores, tiles.images[row])
        for counter in i2t:
            counter.count(row, column, scores)
        for counter in t2i:
            counter.count(column, row, scores.T)

    places = {place for counter in i2t for place in counter.places()}
    places |= {(row, column) for counter in t2i for column, row in counter.places()}
    tiles.for_each(note, sorted(places), "scoring right answers")
    for counter in (*i2t, *t2i):
        counter.settle()
    tiles.for_each(count, tiles.places(), "ranking")


def _at_least(scores: np.ndarray, least: np.ndarray, judged: np.ndarray | None) -> np.ndarray:
    """How many judged scores (queries, candidates) of a row reach each of `least` (queries, R)."""
    if least.shape[1] <= _COMPARED or judged is not None:
        found = np.empty(least.shape, np.int64)
        for number in range(least.shape[1]):
            reach = scores >= least[:, number, None]
            if judged is not None:
                reach &= judged
            found[:, number] = np.add.reduce(reach.view(np.uint8), axis=1, dtype=np.int32)
        return found
    ordered = np.sort(scores, axis=1)
    below = [np.searchsorted(row, own) for row, own in zip(ordered, least, strict=True)]
    return scores.shape[1] - np.stack(below)


def _refuse_nan(scores: np.ndarray, images: np.ndarray) -> None:
    # NaN makes the sum NaN, and costs no array; the sum of infinities is told apart then.
    if np.isnan(np.einsum("ij->", scores)) and (found := np.isnan(scores).any(axis=1)).any():
        raise ValueError(f"a score of query {images[found.argmax()]} is NaN")
