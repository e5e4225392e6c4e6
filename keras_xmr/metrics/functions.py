"""Metrics as functions of scores and judgements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data_pipelines.errors import ArgumentError
from keras_xmr.judgements.relation import as_array, as_judgements
from keras_xmr.metrics.names import DIRECTIONS
from keras_xmr.metrics.ranking import (
    Ranks,
    binary_preference,
    ndcg_at,
    positive_ranks,
)
from keras_xmr.metrics.retrieval import evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices


def recall(
    scores: Any, judgements: Any = None, k: int | Sequence[int] = (1, 5, 10)
) -> dict[str, float]:
    """Recall at K of both directions: the share of queries with a relevant item among the first K.

    Args:
        scores: Scores (images, captions), larger is better; or the output of a re-ranker, or
            `ScoreMatrices`, if other scores rank images.
        judgements: The relevant pairs; see `keras_xmr.judgements.as_judgements`: `Judgements`,
            the row of each caption's image, or a matrix; None if caption i is of image i. Where
            some pairs were not judged, the lists are condensed to those that were (Sakai 2007).
        k: One K or several, from 1.

    Returns:
        Fractions from 0 to 1: `i2t_recall_1` of images as queries, `t2i_recall_1` of captions,
        and so on. Queries without a relevant item do not count; a direction without any query
        that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit, or K is not a whole number from 1.
        ValueError: If a score is NaN.
    """
    recalls: dict[str, float] = {}
    at = _checked_k(k)
    for side, ranks in _ranks(scores, judgements):
        best = ranks.ranks[ranks.starts[:-1][ranks.counts > 0]]
        if len(best):
            recalls |= {f"{side}_recall_{n}": float(np.mean(best <= n)) for n in at}
    return recalls


def retrieval(scores: Any, judgements: Any = None) -> dict[str, float]:
    """All metrics of both directions, and `rsum`, the sum of the six recalls.

    Args:
        scores: Scores (images, captions), larger is better; or the output of a re-ranker, or
            `ScoreMatrices`, if other scores rank images.
        judgements: The relevant pairs; see `recall`.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    matrices = as_score_matrices(scores)
    right = as_judgements(judgements, matrices.image_to_text.shape)
    return evaluate_scores(matrices, right).summary


def ndcg(scores: Any, judgements: Any = None, k: int | Sequence[int] = (10,)) -> dict[str, float]:
    """Normalized discounted cumulative gain at K of both directions; see `ndcg_at`.

    Args:
        scores: Scores, as `recall` takes them.
        judgements: The relevant pairs and their grades; see `recall`.
        k: One K or several, from 1.

    Returns:
        Fractions from 0 to 1: `i2t_ndcg_10`, `t2i_ndcg_10` and so on. Queries without a relevant
        item do not count; a direction without any query that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit, or K is not a whole number from 1.
        ValueError: If a score is NaN.
    """
    at = _checked_k(k)
    return {
        f"{side}_ndcg_{n}": float(np.nanmean(ndcg_at(ranks, int(n))))
        for side, ranks in _ranks(scores, judgements)
        for n in at
        if len(ranks.ranks)
    }


def bpref(scores: Any, judgements: Any) -> dict[str, float]:
    """Binary preference of both directions; see `binary_preference`.

    Args:
        scores: Scores, as `recall` takes them.
        judgements: The relevant pairs; see `recall`. If every pair was judged, all others are
            wrong.

    Returns:
        Fractions from 0 to 1: `i2t_bpref` and `t2i_bpref`. Queries without a right answer do not
        count; a direction without any query that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    return {
        f"{side}_bpref": float(np.nanmean(binary_preference(ranks)))
        for side, ranks in _ranks(scores, judgements)
        if len(ranks.ranks)
    }


def _checked_k(k: int | Sequence[int]) -> np.ndarray:
    at = np.atleast_1d(np.asarray(k))
    if at.ndim != 1 or not np.issubdtype(at.dtype, np.integer) or at.min(initial=1) < 1:
        raise ArgumentError(f"k must be a whole number from 1 on, or several such, not {k!r}")
    return at


def _ranks(scores: Any, judgements: Any) -> Iterator[tuple[str, Ranks]]:
    """The ranks of the relevant items, of images as queries and of captions."""
    matrices = as_score_matrices(scores)
    right = as_judgements(judgements, matrices.image_to_text.shape)
    relations = (right, right.transpose())
    for side, rows, relation in zip(DIRECTIONS, matrices.by_query, relations, strict=True):
        yield side, positive_ranks(rows, relation)


def as_score_matrices(scores: Any) -> ScoreMatrices:
    """Both score matrices of an argument; a tuple may be two of them, or rows of one."""
    if isinstance(scores, ScoreMatrices):
        return scores
    parts = [as_array(part, "scores") for part in scores] if isinstance(scores, tuple) else []
    is_pair = [part.ndim for part in parts] == [2, 2]
    matrices = parts if is_pair else [as_array(scores, "scores")]
    for matrix in matrices:
        if matrix.dtype.kind not in "biuf":
            raise ArgumentError(f"scores must be numbers, got {matrix.dtype}")
    return ScoreMatrices(*matrices)
