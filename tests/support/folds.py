"""Means over folds, for tests that have scores and judgements alone."""

from __future__ import annotations

import numpy as np

from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, measure


def evaluate_folds(
    scores: np.ndarray | ScoreMatrices,
    judgements: Judgements,
    image_of_caption: np.ndarray,
    folds: int,
) -> dict[str, float]:
    """What `measure` says of folds, by name."""
    ids = [list(map(str, range(count))) for count in scores.shape]
    truth = GroundTruth(*ids, np.asarray(image_of_caption), judgements)
    return measure(scores, truth, folds).folds
