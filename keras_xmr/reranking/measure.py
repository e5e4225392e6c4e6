"""Measures re-ranked scores."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable

import numpy as np

from keras_xmr.config.registry import Choice, build
from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import (
    Measured,
    RetrievalMetrics,
    all_metrics,
    mean_over_folds,
    measure,
)
from keras_xmr.reranking.base import Reranked, Reranker

_log = logging.getLogger(__name__)


def build_rerankers(choices: Iterable[Choice]) -> dict[str, Reranker]:
    """The re-rankers of a config by name; the second of one name is `<name>_2`, and so on."""
    seen: Counter[str] = Counter()
    rerankers = {}
    for choice in choices:
        seen[choice.name] += 1
        number = seen[choice.name]
        name = choice.name if number == 1 else f"{choice.name}_{number}"
        rerankers[name] = build("reranker", choice)
    return rerankers


def measure_reranked(
    reranker: Reranker,
    scores: np.ndarray,
    truth: GroundTruth,
    folds: int = 0,
    text_to_image: np.ndarray | None = None,
) -> Measured:
    """Re-ranks scores, and measures what comes out. How long the re-ranking takes is logged.

    A fold is re-ranked on its own: its queries are all that its re-ranking sees.

    Args:
        reranker: The re-ranker.
        scores: Scores (images, captions). Its rows rank captions.
        truth: What is known of the images and captions.
        folds: Over how many folds means are taken besides; 0 for none.
        text_to_image: The scores whose columns rank images, if they are others.

    Raises:
        ValueError: If shapes differ, or a score is not finite.
    """
    begun = time.perf_counter()
    i2t, t2i = _rerank(reranker, scores, text_to_image)
    seconds = time.perf_counter() - begun
    _log.info(
        "%s: %d x %d scores re-ranked in %.1f s", type(reranker).__name__, *scores.shape, seconds
    )
    measured = measure(i2t, truth, text_to_image=t2i)
    if folds:
        measured.folds = _folds(reranker, scores, truth, folds, text_to_image)
    return measured


def _folds(
    reranker: Reranker,
    scores: np.ndarray,
    truth: GroundTruth,
    folds: int,
    text_to_image: np.ndarray | None,
) -> dict[str, float]:
    def of_fold(images: np.ndarray, captions: np.ndarray) -> RetrievalMetrics:
        members = np.ix_(images, captions)
        columns = None if text_to_image is None else text_to_image[members]
        i2t, t2i = _rerank(reranker, scores[members], columns)
        return all_metrics(i2t, truth.select(images, captions), t2i)

    return mean_over_folds(truth, folds, of_fold)


def _rerank(reranker: Reranker, scores: np.ndarray, text_to_image: np.ndarray | None) -> Reranked:
    """Re-ranks each direction by the scores of that direction."""
    reranked = reranker(scores)
    if text_to_image is None:
        return reranked
    return Reranked(reranked.image_to_text, reranker(text_to_image).text_to_image)
