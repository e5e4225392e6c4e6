"""Metrics of re-ranked scores."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import (
    Measured,
    RetrievalMetrics,
    ScoreMatrices,
    Scores,
    all_metrics,
    mean_over_folds,
    measure,
)
from keras_xmr.reranking.base import Reranker

if TYPE_CHECKING:
    from keras_xmr.parts.registry import Choice

_log = logging.getLogger(__name__)


def build_rerankers(choices: Iterable[Choice]) -> dict[str, Reranker]:
    """Builds the re-rankers of a config by name; the second of a name is `<name>_2`."""

    seen: Counter[str] = Counter()
    rerankers = {}
    for choice in choices:
        seen[choice.name] += 1
        number = seen[choice.name]
        name = choice.name if number == 1 else f"{choice.name}_{number}"
        rerankers[name] = choice.build()
    return rerankers


def measure_reranked(
    reranker: Reranker,
    scores: Scores,
    truth: GroundTruth,
    folds: int = 0,
) -> Measured:
    """Re-ranks scores, and computes their metrics. The time of the re-ranking is kept.

    A fold is re-ranked separately, by its queries alone.

    Args:
        reranker: The re-ranker.
        scores: Scores (images, captions).
        truth: The ground truth of the images and captions.
        folds: Number of folds for further means; 0 for none.

    Raises:
        ValueError: If shapes differ, or a score is not finite.
    """
    scores = ScoreMatrices.of(scores).dense()
    begun = time.perf_counter()
    reranked = _rerank(reranker, scores)
    seconds = time.perf_counter() - begun
    _log.info(
        "%s: %d x %d scores re-ranked in %.1f s", type(reranker).__name__, *scores.shape, seconds
    )
    measured = measure(reranked, truth)
    measured.seconds = seconds

    def measure_fold(images: np.ndarray, captions: np.ndarray) -> RetrievalMetrics:
        reranked = _rerank(reranker, scores.select(images, captions))
        return all_metrics(reranked, truth.select(images, captions))

    if folds:
        measured.folds = mean_over_folds(truth, folds, measure_fold)
    return measured


def _rerank(reranker: Reranker, scores: ScoreMatrices) -> ScoreMatrices:
    """Re-ranks each direction by the scores of that direction."""
    i2t, t2i = reranker(np.asarray(scores.image_to_text))
    if scores.other is not None:
        _, t2i = reranker(np.asarray(scores.other))
    return ScoreMatrices(i2t, t2i)
