"""The mean reciprocal rank."""

from __future__ import annotations

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.base import QueryMetric
from keras_xmr.metrics.ranking import best_ranks, positive_ranks


class ReciprocalRank(QueryMetric):
    """1 / the rank of the best relevant item; its mean is the MRR (Voorhees 1999)."""

    TITLE = "MRR"

    def __call__(self, scores: np.ndarray, judgements: Judgements) -> np.ndarray:
        return 1.0 / best_ranks(positive_ranks(scores, judgements))
