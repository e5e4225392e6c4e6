"""The core of every evaluation: metrics of scores, with and without re-rankers.

It serves the scores of a model, the mean of several, and those of a file, without TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import numpy as np

from keras_xmr.evaluation.results import (
    EmbeddedSplit,
    Evaluation,
    MatcherEvaluation,
    RerankedEvaluation,
)
from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import measure
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.reranking import Reranker, measure_reranked

_LOGGER = logging.getLogger(__name__)


def evaluate_split_scores(
    split: str,
    scores: Iterable[tuple[str, ScoreMatrices]],
    truth: GroundTruth,
    folds: int = 0,
    rerankers: Mapping[str, Reranker] | None = None,
) -> Evaluation:
    """Measures scores, and each after re-ranking. Many ties are a warning.

    Args:
        split: The split.
        scores: Names and scores; the verdict is about the first.
        truth: Its ground truth.
        folds: Number of folds over which means are taken in addition; 0 for none.
        rerankers: Re-rankers by name.

    Raises:
        ValueError: As `measure` raises it.
    """
    results = [
        MatcherEvaluation(name, matrices, measure(matrices, truth, folds), tied_share(matrices))
        for name, matrices in scores
    ]
    for result in results:
        if warning := tie_warning(result.name, result.tied):
            _LOGGER.warning("%s: %s", split, warning)
    reranked = [
        RerankedEvaluation(
            result.name,
            name,
            measure_reranked(reranker, result.scores, truth, folds),
        )
        for name, reranker in (rerankers or {}).items()
        for result in results
    ]
    return Evaluation(split, *truth.shape, results, EmbeddedSplit({}, {}), truth, reranked=reranked)


TIED_LIMIT = 0.02
"""Largest share of tied pairs without a warning."""

_QUERIES = 200
_QUERIES_OF_TILES = 6


def tied_share(scores: ScoreMatrices) -> float:
    """Share of pairs whose score another candidate of the same query has, to the last digit.

    The smaller one of both directions: a duplicate caption or image ties its pairs in one direction
    alone, while a score that saturates ties them in both. Of many queries, 200 evenly spread ones
    count.

    Args:
        scores: Scores (images, captions).
    """
    images, captions = (np.arange(count) for count in scores.shape)
    count = _QUERIES if scores.is_dense else _QUERIES_OF_TILES
    by_image, _ = scores.select(_spread(images, count), captions).by_query
    _, by_caption = scores.select(images, _spread(captions, count)).by_query
    return min(_tied(by_image), _tied(by_caption))


def tie_warning(name: str, share: float) -> str | None:
    """A warning about a matcher that ties many pairs; None for few."""
    if share <= TIED_LIMIT:
        return None
    return (
        f"{name} ties {100 * share:.0f} % of the pairs with another candidate of the same query, "
        "so its ranks there are arbitrary: scores saturate, or embeddings have collapsed."
    )


def _spread(items: np.ndarray, count: int) -> np.ndarray:
    chosen = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return items[chosen]


def _tied(scores: np.ndarray) -> float:
    """Share of the scores (queries, candidates) that occur twice in their row."""
    if not scores.size:
        return 0.0
    ordered = np.sort(scores, axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    tied = np.zeros(ordered.shape, bool)
    tied[:, 1:] |= same
    tied[:, :-1] |= same
    return float(tied.mean())
