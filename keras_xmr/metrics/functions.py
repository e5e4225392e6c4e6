"""Metrics as functions of scores and of what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_xmr.errors import ArgumentError
from keras_xmr.judgements.given import as_judgements
from keras_xmr.metrics.ranking import (
    PRECISION_AT,
    Ranks,
    binary_preference,
    ndcg_at,
    positive_ranks,
)
from keras_xmr.metrics.retrieval import evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices


def recall(scores: Any, judgements: Any = None, k: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """Recall at K of both directions: how many queries have a right answer among the first K.

    Args:
        scores: Scores (images, captions), larger is better.
        judgements: What is right, as `keras_xmr.judgements.as_judgements` takes it: `Judgements`,
            the row of each caption's image, or a matrix; None if caption i is of image i. Where
            some pairs were not judged, the lists are condensed to those that were (Sakai 2007).
        k: The K.

    Returns:
        Fractions from 0 to 1: `i2t_recall_1` of images as queries, `t2i_recall_1` of captions,
        and so on. Queries without a right answer do not count.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    _check_k(k)
    found: dict[str, float] = {}
    for side, ranks in _ranks(scores, judgements):
        best = ranks.ranks[ranks.starts[:-1][ranks.counts > 0]]
        found |= {f"{side}_recall_{n}": float(np.mean(best <= n)) if len(best) else 0.0 for n in k}
    return found


def retrieval(scores: Any, judgements: Any = None) -> dict[str, float]:
    """All metrics of both directions, and `rsum`, the sum of the six recalls.

    Args:
        scores: Scores (images, captions), larger is better; or what a re-ranker gives, or
            `ScoreMatrices`, if images are ranked by others.
        judgements: What is right; see `recall`.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    scores = ScoreMatrices.of(
        scores if isinstance(scores, tuple | ScoreMatrices) else np.asarray(scores)
    )
    right = as_judgements(judgements, scores.image_to_text.shape)
    return evaluate_scores(scores, right, PRECISION_AT).summary


def ndcg(scores: Any, judgements: Any = None, k: Sequence[int] = (10,)) -> dict[str, float]:
    """Normalized discounted cumulative gain at K of both directions; see `ndcg_at`.

    Args:
        scores: Scores (images, captions), larger is better.
        judgements: What is right, and how right; see `recall`.
        k: The K.

    Returns:
        Fractions from 0 to 1: `i2t_ndcg_10`, `t2i_ndcg_10` and so on. Queries without a right
        answer do not count.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    _check_k(k)
    return {
        f"{side}_ndcg_{n}": _mean(ndcg_at(ranks, n))
        for side, ranks in _ranks(scores, judgements)
        for n in k
    }


def bpref(scores: Any, judgements: Any) -> dict[str, float]:
    """Binary preference of both directions; see `binary_preference`.

    Args:
        scores: Scores (images, captions), larger is better.
        judgements: What is right; see `recall`. Where every pair was judged, whatever is not right
            is wrong.

    Returns:
        Fractions from 0 to 1: `i2t_bpref` and `t2i_bpref`. Queries without a right answer do not
        count.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    return {
        f"{side}_bpref": _mean(binary_preference(ranks))
        for side, ranks in _ranks(scores, judgements)
    }


def _check_k(k: Sequence[int]) -> None:
    if min(k, default=0) < 1:
        raise ArgumentError(f"k must be at least 1, got {k}")


def _ranks(scores: Any, judgements: Any) -> Iterator[tuple[str, Ranks]]:
    """The ranks of the right answers, of images as queries and of captions."""
    scores = np.asarray(scores)
    right = as_judgements(judgements, scores.shape)
    yield "i2t", positive_ranks(scores, right)
    yield "t2i", positive_ranks(scores.T, right.transpose())


def _mean(values: np.ndarray) -> float:
    """The mean over the queries that have a value; 0 if none has one."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0
