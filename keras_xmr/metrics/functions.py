"""Metrics as functions of scores and of what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_xmr.errors import ArgumentError
from keras_xmr.judgements.given import as_judgements
from keras_xmr.metrics.ranking import PRECISION_AT, positive_ranks
from keras_xmr.metrics.retrieval import evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices


def recall(scores: Any, judgements: Any = None, k: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """Recall at K of both directions: how many queries have a right answer among the first K.

    Args:
        scores: Scores (images, captions), larger is better.
        judgements: What is right, as `keras_xmr.judgements.as_judgements` takes it: `Judgements`,
            the row of each caption's image, or a matrix; None if caption i is of image i.
        k: The K.

    Returns:
        Fractions from 0 to 1: `i2t_recall_1` of images as queries, `t2i_recall_1` of captions,
        and so on. Queries without a right answer do not count.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    if min(k, default=0) < 1:
        raise ArgumentError(f"k names how many answers are looked at, from 1 on, not {k}")
    scores = np.asarray(scores)
    right = as_judgements(judgements, scores.shape)
    found: dict[str, float] = {}
    for side, rows, own in (("i2t", scores, right), ("t2i", scores.T, right.transpose())):
        ranks = positive_ranks(rows, own)
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
