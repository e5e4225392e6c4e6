"""Re-ranking of the top candidates of a query by their rankings as queries."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keras_xmr.reranking.base import (
    Reranked,
    Reranker,
    check_count,
    check_scale,
    refuse_non_finite,
)
from keras_xmr.utils.processors import in_threads

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import NonNegativeFloat, PositiveFloat, PositiveInt

_QUERIES = 64


@dataclass(kw_only=True, eq=False)
class _NeighbourReranker(Reranker):
    """Re-orders the top candidates of every query; the others keep their places.

    Scores are redistributed among the top candidates of a query: the best score goes to the new
    first candidate, and so on. Equal scores stay equal, so that ties have no advantage. Where an
    order is needed, equal scores are ordered by their index.
    """

    neighbours: int

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)

    def rerank(self, scores: np.ndarray) -> Reranked:
        refuse_non_finite(scores)
        return Reranked(self._direction(scores), self._direction(scores.T).T)

    def _direction(self, scores: np.ndarray, neighbours: int | None = None) -> np.ndarray:
        """Re-ranks the columns of each row."""
        first = _first_candidates(scores, neighbours or self.neighbours)
        values = np.take_along_axis(scores, first, axis=1)
        order = self.order(scores, first, values)
        result = scores.copy(order="K")
        np.put_along_axis(result, np.take_along_axis(first, order, axis=1), values, axis=1)
        return result

    @abstractmethod
    def order(self, scores: np.ndarray, first: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Returns the new order of the first candidates.

        Args:
            scores: Scores (queries, candidates).
            first: The first K candidates of each query, best first, int (queries, K).
            values: The scores (queries, K).

        Returns:
            Places in `first`, the new best first, int (queries, K).
        """


@dataclass(kw_only=True, eq=False)
class ReciprocalNeighbours(_NeighbourReranker):
    """Reciprocal-neighbour re-ranking (RR): the first candidates by where they place the query.

    For query q with the first K candidates c_1 ... c_K, place(q | c) is the number of queries
    that score higher with c than q does: the rank of q when c is the query. The
    candidates are sorted by place(q | c_k), equal ones as before; from K + 1 on nothing changes.
    Both directions are read alike, each from the scores alone. For captions as queries the
    released code takes the best place of any caption that was written for the same image; that
    needs the ground truth, so it is not done here.

    Source: Wang et al. 2019, "Matching Images and Text with Multi-modal Tensor Fusion and
    Re-ranking", cross-modal re-ranking; the released code has K = 15 for images as queries
    and K = 20 for captions.

    Args:
        neighbours: K, the number of re-ranked candidates of an image as a query.
        caption_neighbours: K of a caption as a query.
    """

    neighbours: PositiveInt = 15
    caption_neighbours: PositiveInt = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("caption_neighbours", self.caption_neighbours)

    def rerank(self, scores: np.ndarray) -> Reranked:
        refuse_non_finite(scores)
        captions = self._direction(scores.T, self.caption_neighbours)
        return Reranked(self._direction(scores), captions.T)

    def order(self, scores: np.ndarray, first: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.argsort(_reverse_places(scores, first, values), axis=1, kind="stable")


@dataclass(kw_only=True, eq=False)
class MultiFactor(_NeighbourReranker):
    """Multi-factor re-ranking (MR): the first candidates by three factors added up.

    For query q with the first K candidates c_1 ... c_K, candidate c_k gets

        significance * A[q, c_k] / sum_l A[l, c_k] + exp(-decay k) + reverse * exp(-decay r_k)

    with the sum over all queries l, and r_k in 1 ... K its place among the candidates when they
    are sorted as reciprocal-neighbour re-ranking does. Candidates are sorted by that, equal ones
    as before; from K + 1 on nothing changes (the released code ties them all at 0). If a score
    is below 0, the lowest score is subtracted from all of them for the first factor, since shares
    of a sum need numbers that are not negative. Both directions are read alike.

    Source: Yuan et al. 2022, "Remote Sensing Cross-Modal Text-Image Retrieval Based on Global
    and Local Information", multivariate re-ranking, as the released code computes it; its
    settings for RSICD are the defaults here.

    Args:
        neighbours: K, the number of re-ranked candidates of a query; at least 10 in the paper.
        significance: Weight of the share that the query has in all scores of the candidate.
        reverse: Weight of the place that the query has when the candidate is the query.
        decay: Decay of the weight of a place.
    """

    neighbours: PositiveInt = 30
    significance: NonNegativeFloat = 0.3
    reverse: NonNegativeFloat = 1.1
    decay: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("significance", self.significance, from_zero=True)
        check_scale("reverse", self.reverse, from_zero=True)
        check_scale("decay", self.decay)

    def order(self, scores: np.ndarray, first: np.ndarray, values: np.ndarray) -> np.ndarray:
        reverse = np.argsort(_reverse_places(scores, first, values), axis=1, kind="stable")
        worth = np.exp(-self.decay * np.arange(1, first.shape[1] + 1))
        factors = self.significance * _shares(scores, first, values) + worth
        by_reverse = np.take_along_axis(factors, reverse, axis=1) + self.reverse * worth
        np.put_along_axis(factors, reverse, by_reverse, axis=1)
        return np.argsort(-factors, axis=1, kind="stable")


def _first_candidates(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the best candidates of each query, best first, int (queries, count)."""
    queries, candidates = scores.shape
    count = min(count, candidates)

    def find(start: int) -> list[np.ndarray]:
        tile = np.ascontiguousarray(scores[start : start + _QUERIES])
        last = np.partition(tile, candidates - count, axis=1)[:, candidates - count]
        first = []
        for row, least in zip(tile, last, strict=True):
            # More than `count` of them if scores are equal; the stable sort orders them by index.
            best = np.flatnonzero(row >= least)
            first.append(best[np.argsort(-row[best], kind="stable")[:count]])
        return first

    return np.stack([first for tile in in_threads(find, queries, _QUERIES) for first in tile])


def _reverse_places(scores: np.ndarray, first: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the number of queries that score higher with a candidate than its query: int
    (queries, K).
    """
    queries, candidates = scores.shape
    by_candidate = np.argsort(first, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(first.ravel(), minlength=candidates))
    flat_values = values.ravel()[by_candidate]
    ranks = np.empty(first.size, np.int64)

    def rank(start: int) -> None:
        chosen = np.arange(start, min(start + _QUERIES, candidates))
        begins = np.where(chosen > 0, ends[chosen - 1], 0)
        chosen, begins = (a[ends[chosen] > begins] for a in (chosen, begins))
        tile = np.sort(np.ascontiguousarray(scores[:, chosen].T), axis=1)
        for ordered, begin, end in zip(tile, begins, ends[chosen], strict=True):
            query_scores = flat_values[begin:end]
            ranks[begin:end] = queries - np.searchsorted(ordered, query_scores, side="right")

    in_threads(rank, candidates, _QUERIES)
    places = np.empty(first.size, np.int64)
    places[by_candidate] = ranks
    return places.reshape(first.shape)


def _shares(scores: np.ndarray, first: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the share of each query in all scores of its candidates: float64 (queries, K)."""
    queries = len(scores)
    lowest = min(float(scores.min()), 0.0)
    totals = scores.sum(axis=0, dtype=np.float64)[first] - queries * lowest
    shifted = values.astype(np.float64) - lowest
    return np.divide(shifted, totals, out=np.zeros(first.shape), where=totals > 0)
