"""The core of every evaluation: metrics of scores, with and without re-rankers.

It serves the scores of a model, the mean of several, and those of a file, without TensorFlow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from keras_xmr.evaluation.results import (
    EmbeddedSplit,
    Evaluation,
    MatcherEvaluation,
    RerankedEvaluation,
)
from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import ScoreMatrices, measure
from keras_xmr.metrics.ties import tie_warning, tied_share
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
