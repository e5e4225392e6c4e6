"""What every evaluation is: scores, re-rankers, and all that is known to be right.

The scores of a model, the mean of several and those of a file go the same way; it needs no
TensorFlow.
"""

from __future__ import annotations

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
from keras_xmr.reranking import Reranker, measure_reranked

Matrices = Iterable[tuple[str, np.ndarray, np.ndarray | None]]
"""Name, scores (images, captions), and those that rank images if they are others."""


def evaluate_known(
    split: str,
    matrices: Matrices,
    truth: GroundTruth,
    folds: int = 0,
    rerankers: Mapping[str, Reranker] | None = None,
) -> Evaluation:
    """Measures score matrices as they are, and what re-rankers make of each.

    Args:
        split: The split.
        matrices: The scores; the first are those that a verdict is about.
        truth: What is known of its images and captions.
        folds: Over how many folds means are taken besides; 0 for none.
        rerankers: Re-rankers by name.

    Raises:
        ValueError: As `measure` raises it.
    """
    found = [
        MatcherEvaluation(name, scores, measure(scores, truth, folds, t2i), t2i)
        for name, scores, t2i in matrices
    ]
    reranked = [
        RerankedEvaluation(
            own.name,
            name,
            measure_reranked(reranker, own.scores, truth, folds, own.text_to_image),
        )
        for name, reranker in (rerankers or {}).items()
        for own in found
    ]
    return Evaluation(split, *truth.shape, found, EmbeddedSplit({}, {}), truth, reranked=reranked)
