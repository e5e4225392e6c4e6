"""Average Semantic Precision (ASP), by the semantic relevance of captions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Integral
from typing import Literal

import numpy as np

from keras_xmr.judgements.ground_truth import GroundTruth
from keras_xmr.metrics.rank_counting import refuse_nan
from keras_xmr.metrics.ranking import QueryMetrics
from keras_xmr.metrics.retrieval import RetrievalMetrics
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores, real_numbers
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.processors import in_threads

ASP_TOP = (10, 30, 100, 300, 1000, 3000, 10000)
RELEASED_ASP_AT = (5, 10, 20)
ASP_CHANCE = "asp_chance"

# Pairs that a thread ranks at once; it needs about 60 bytes per pair.
_PAIRS = 1 << 18

ScoreTies = Literal["against", "share"]


def semantic_precision(
    scores: Scores,
    relevance: np.ndarray,
    top: Sequence[int] = ASP_TOP,
    score_ties: ScoreTies = "against",
) -> RetrievalMetrics:
    """Computes Average Semantic Precision (ASP) of scores, in both directions.

    * `asp`: the mean over all candidates of min(R_C, R_S) / max(R_C, R_S), where R_C and R_S
      are the ranks of a candidate by relevance and by score: one more than the number of
      candidates with strictly more of it (Li et al. 2022, Eq. 4, 8).
    * `asp_top_N`: the same over the first N by relevance alone, as if there were no others
      (Fig. 3). Ties with the N-th are among them. Only N below the number of candidates.
    * `asp_chance`: the mean of `asp` over random rankings.
    * `released_asp_K`: the ASP_K of the paper's released code: the relevance of the first K by
      score, as a share of the largest relevance of K candidates.

    A query with equally relevant candidates only has no semantic ranking and is not counted.

    By Eq. 8, tied scores share their best rank. Where most candidates tie in relevance too, a
    matrix of equal scores would then beat chance by far, so tied scores count against the model
    as in all other metrics: of the ranks that its ties span, a candidate takes the one that yields
    less. Ties in relevance share their best rank in any case.

    Args:
        scores: Scores (images, captions), arrays or memory maps.
        relevance: Semantic relevance (images, captions), from 0 on, an array or a memory map.
        top: The N of `asp_top_N`.
        score_ties: "against" counts tied scores against the model, "share" is Eq. 8 to the
            letter. Without tied scores they are the same.

    Raises:
        ArgumentError: If an N is not a whole number from 1.
        ValueError: If the shapes differ or the matrix is empty, a score or a relevance is
            NaN, or a relevance is below 0 or infinite.
    """
    rows, columns = ScoreMatrices.of(scores).by_query
    relevance = real_numbers(relevance, "relevance")
    for matrix in (rows, columns.T):
        if matrix.shape != relevance.shape:
            raise ValueError(f"scores of shape {matrix.shape}, relevance of {relevance.shape}")
    if not relevance.size:
        raise ValueError("semantic precision needs at least one image and one caption")
    if wrong := [n for n in top if not isinstance(n, Integral) or n < 1]:
        raise ArgumentError(f"top has whole numbers from 1 on, not {wrong[0]!r}")
    i2t = _direction(rows, relevance, top, score_ties)
    t2i = _direction(columns, relevance.T, top, score_ties)
    return RetrievalMetrics.from_queries(i2t, t2i)


def precision_by_relevance(scores: ScoreMatrices, truth: GroundTruth) -> RetrievalMetrics | None:
    """Returns `semantic_precision` by every relevance of a ground truth; None without a relevance.

    Of a further relevance, `asp` alone is measured, as `asp_<name>`.
    """
    metrics = [] if truth.relevance is None else [semantic_precision(scores, truth.relevance)]
    for name, relevance in truth.extra_relevance.items():
        further = semantic_precision(scores, relevance, ())
        sides = (further.image_to_text, further.text_to_image)
        i2t, t2i = (QueryMetrics({f"asp_{name}": q.values["asp"]}, q.positives) for q in sides)
        metrics.append(RetrievalMetrics.from_queries(i2t, t2i))
    return functools.reduce(RetrievalMetrics.and_also, metrics) if metrics else None


def _direction(
    scores: np.ndarray, relevance: np.ndarray, top: Sequence[int], ties: ScoreTies
) -> QueryMetrics:
    queries, candidates = scores.shape
    top = [n for n in dict.fromkeys(top) if n < candidates]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, candidates + 1))])
    at_random = _terms_at_random(np.arange(candidates + 1), candidates, harmonic)
    step = max(1, _PAIRS // max(candidates, 1))

    def rank_rows(first: int) -> dict[str, np.ndarray]:
        rows = slice(first, first + step)
        block = _floats(scores[rows], "score", first)
        wanted = _floats(relevance[rows], "relevance", first)
        if wanted.min() < 0:
            raise ValueError(f"a relevance is below 0: {wanted.min()}")
        if wanted.max() == np.inf:  # Shares of an infinite gain are not numbers.
            raise ValueError("a relevance is infinite")
        order = np.argsort(block, axis=1)[:, ::-1]
        best, worst = _ranks(block, order)
        if ties == "share":
            worst = best
        ideal, _ = _ranks(wanted)
        asp = _terms(ideal, best, worst).mean(axis=1)
        metrics = {"asp": asp, ASP_CHANCE: at_random[ideal].mean(axis=1)}
        metrics |= _asp_of_first(top, asp, ideal, block, order, ties, harmonic)
        metrics |= _released(wanted, best, order)
        differ = wanted.min(axis=1) < wanted.max(axis=1)
        known = {name: np.where(differ, values, np.nan) for name, values in metrics.items()}
        return known | {"positives": np.count_nonzero(wanted, axis=1)}

    blocks = in_threads(rank_rows, queries, step)
    values = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    chance = {f"asp_top_{n}": values.pop(f"asp_top_{n}_chance") for n in top}
    return QueryMetrics(values, values.pop("positives"), chance=chance)


def _terms_at_random(
    ideal: np.ndarray, counts: int | np.ndarray, harmonic: np.ndarray
) -> np.ndarray:
    """Returns the mean of min(r, j) / max(r, j) over all ranks j up to a count, for ranks r
    from 1.
    """
    terms = (ideal + 1) / 2 + ideal * (harmonic[counts] - harmonic[ideal])
    return np.asarray(terms / counts)


def _floats(rows: np.ndarray, name: str, first: int) -> np.ndarray:
    block = np.ascontiguousarray(rows)
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    refuse_nan(block, name, range(first, first + len(block)))
    return block


def _ranks(values: np.ndarray, order: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best and worst rank that each value can have among its ties, from 1: int32, as
    `values`.

    The best is one more than the number of strictly larger values in its row.

    Args:
        values: Rows of values.
        order: The places of each row, the largest first; they are sorted without it.
    """
    if order is None:
        order = np.argsort(values, axis=1)[:, ::-1]
    ordered = np.take_along_axis(values, order, axis=1)
    begins = np.ones(values.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    best = np.empty(values.shape, np.int32)
    if begins.all():
        np.put_along_axis(best, order, np.arange(1, values.shape[1] + 1, dtype=np.int32)[None], 1)
        return best, best
    worst = np.empty_like(best)
    row_begins = np.arange(len(values), dtype=np.int32)[:, None] * values.shape[1]
    for ranks, places in zip((best, worst), _spans(begins.ravel()), strict=True):
        np.put_along_axis(ranks, order, places.reshape(values.shape) - row_begins + 1, axis=1)
    return best, worst


def _spans(begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the last place of the ties that each place is of, by where ties
    begin.
    """
    places = np.arange(len(begins), dtype=np.int32)
    starts = np.maximum.accumulate(np.where(begins, places, 0))
    # A value ends its ties where the next one begins others, or all is over.
    ends = np.where(np.roll(begins, -1), places, places[-1:])
    return starts, np.minimum.accumulate(ends[::-1])[::-1]


def _terms(ideal: np.ndarray, best: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """Returns the contribution of each candidate; of the ranks that ties span, an end yields
    least.
    """
    terms = np.minimum(ideal, best) / np.maximum(ideal, best)
    if worst is not best:
        np.minimum(terms, np.minimum(ideal, worst) / np.maximum(ideal, worst), out=terms)
    return terms


def _asp_of_first(
    top: Sequence[int],
    asp: np.ndarray,
    ideal: np.ndarray,
    scores: np.ndarray,
    order: np.ndarray,
    ties: ScoreTies,
    harmonic: np.ndarray,
) -> dict[str, np.ndarray]:
    """Computes ASP of the first n of each query by relevance, and by chance, by name.

    All queries are in one row, in the order of their scores. Candidates that are not among the
    first are removed; the order stays, so the ranks need no sorting. For scores 0.1, 0.9, 0.5 of
    ideal ranks 1, 2, 3 the row has the ideal ranks 2, 3, 1, and for n = 2 it keeps 2, 1, which have
    the ranks 1, 2 by score: each yields 1/2.
    """
    queries, candidates = ideal.shape
    query = np.repeat(np.arange(queries, dtype=np.int32), candidates)
    ideal = np.take_along_axis(ideal, order, axis=1).ravel()
    scores = np.take_along_axis(scores, order, axis=1).ravel()
    metrics = {}
    for n in sorted(top, reverse=True):  # The first few are among the first many.
        is_first = ideal <= n
        query, ideal, scores = query[is_first], ideal[is_first], scores[is_first]
        counts = np.bincount(query, minlength=queries)
        row_begins = (np.cumsum(counts) - counts).astype(np.int32)[query]
        begins = np.ones(len(query), bool)
        begins[1:] = (scores[1:] != scores[:-1]) | (query[1:] != query[:-1])
        starts, ends = _spans(begins)
        # A more relevant candidate than one of them is one of them: `ideal` stays.
        best = starts - row_begins + 1
        worst = best if ties == "share" or begins.all() else ends - row_begins + 1
        sums = np.bincount(query, weights=_terms(ideal, best, worst), minlength=queries)
        metrics[f"asp_top_{n}"] = np.where(counts < candidates, sums / counts, asp)
        at_random = _terms_at_random(ideal, counts[query], harmonic)
        sums = np.bincount(query, weights=at_random, minlength=queries)
        metrics[f"asp_top_{n}_chance"] = sums / counts
    return metrics


def _released(relevance: np.ndarray, rank: np.ndarray, order: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the relevance of the first K by score, as a share of the possible one, by name."""
    most = min(max(RELEASED_ASP_AT), relevance.shape[1])
    gains = np.take_along_axis(relevance, order[:, :most], axis=1)
    ranks = np.take_along_axis(rank, order[:, : most + 1], axis=1)
    for row in np.flatnonzero((ranks[:, 1:] == ranks[:, :-1]).any(axis=1)):
        tied = np.flatnonzero(rank[row] <= most)
        # Among equals, the least relevant first.
        of_first = np.lexsort((relevance[row, tied], rank[row, tied]))[:most]
        gains[row] = relevance[row, tied[of_first]]
    largest = np.sort(np.partition(relevance, -most, axis=1)[:, -most:], axis=1)[:, ::-1]
    gains, possible = (np.cumsum(some, axis=1, dtype=np.float64) for some in (gains, largest))
    with np.errstate(invalid="ignore"):  # A query without any relevance is not counted.
        shares = gains / possible
    return {f"released_asp_{k}": shares[:, min(k, most) - 1] for k in RELEASED_ASP_AT}
