"""Counts the ranks of relevant items, in a matrix of scores or tile by tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.score_matrices import Place, ScoreMatrices, ScoreTiles, place_in
from keras_xmr.utils.processors import in_threads
from keras_xmr.utils.vectors import chunks

_ROWS = 256


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
    relevant = RelevantScores(judgements, rows, [candidates])
    for row, block in enumerate(blocks):
        relevant.add(row, 0, block)
    counter = relevant.counter()

    def count(row: int) -> None:
        block = np.ascontiguousarray(blocks[row])
        block = block if block.dtype.kind == "f" else block.astype(np.float64)
        refuse_nan(block, "score", rows[row])
        counter.add_tile(row, 0, block)

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


# With more relevant items of a query than this, sorting a tile is faster than comparing.
_COMPARED = 16


class RelevantScores:
    """The scores of the relevant items of one direction, which are needed before any is ranked.

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

    def places(self) -> list[Place]:
        """Returns the tiles that have the scores of relevant items."""
        rows, columns = np.divmod(np.unique(self._tile), len(self._candidates))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def add(self, row: int, column: int, scores: np.ndarray) -> None:
        """Takes the scores of the relevant items of a tile."""
        tile = row * len(self._candidates) + column
        chosen = slice(*np.searchsorted(self._tile, (tile, tile + 1)))
        queries, candidates = (places[chosen] for places in self._inside)
        self._scores[self._order[chosen]] = scores[queries, candidates]

    def counter(self) -> RankCounter:
        """Returns a counter of the ranks, once the tiles of all `places` were added."""
        order = np.lexsort((-self._grades, self._scores, self._query))
        return RankCounter(
            self._judgements,
            self._queries,
            self._candidates,
            self._starts,
            self._query,
            self._scores[order],
            self._grades[order],
        )


class RankCounter:
    """Counts the ranks of the relevant items of one direction, tile by tile.

    The rank of an item is 1 + the number of candidates that score as high and come before it.

    Args:
        judgements: Relevant candidates of each query, (queries, candidates).
        queries: The numbers of the queries of each row of tiles.
        candidates: The numbers of the candidates of each column of tiles.
        starts: The index of the first relevant item of each query, int64 (queries + 1,).
        query: The query of each relevant item.
        scores: The scores of the relevant items, ascending within a query.
        grades: The grades of the relevant items, descending where scores are equal.
    """

    def __init__(
        self,
        judgements: Judgements,
        queries: Sequence[np.ndarray],
        candidates: Sequence[np.ndarray],
        starts: np.ndarray,
        query: np.ndarray,
        scores: np.ndarray,
        grades: np.ndarray,
    ) -> None:
        self._judgements = judgements
        self._queries, self._candidates = queries, candidates
        self._starts, self._query = starts, query
        self._scores, self._grades = scores, grades
        self._ahead = np.zeros(len(scores), np.int64)

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
        i2t.append(RelevantScores(judgements, rows.images, rows.captions))
        t2i.append(RelevantScores(judgements.transpose(), columns.captions, columns.images))
    if rows is columns:
        both = _count(rows, i2t, t2i)
    else:
        both = _count(rows, i2t, [])[0], _count(columns, [], t2i)[1]
    return list(zip(*both, strict=True))


def _count(
    tiles: ScoreTiles, i2t: Sequence[RelevantScores], t2i: Sequence[RelevantScores]
) -> tuple[list[Ranks], list[Ranks]]:
    """Ranks by the tiles of one matrix, with images as queries and with captions."""

    def add_relevant(row: int, column: int, scores: np.ndarray) -> None:
        for relevant in i2t:
            relevant.add(row, column, scores)
        for relevant in t2i:
            relevant.add(column, row, scores.T)

    places = {place for relevant in i2t for place in relevant.places()}
    places |= {(row, column) for relevant in t2i for column, row in relevant.places()}
    tiles.for_each(add_relevant, sorted(places), "scoring relevant items")
    of_images = [relevant.counter() for relevant in i2t]
    of_captions = [relevant.counter() for relevant in t2i]

    def add_tile(row: int, column: int, scores: np.ndarray) -> None:
        refuse_nan(scores, "score", tiles.images[row])
        for counter in of_images:
            counter.add_tile(row, column, scores)
        for counter in of_captions:
            counter.add_tile(column, row, scores.T)

    tiles.for_each(add_tile, tiles.places(), "ranking")
    return [counter.ranks() for counter in of_images], [counter.ranks() for counter in of_captions]


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
