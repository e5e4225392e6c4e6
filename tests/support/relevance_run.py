"""A loss that learns relevance, and batches for it."""

from __future__ import annotations

import models
import numpy as np
from keras import ops

from keras_xmr.losses import Loss
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.contracts import LossContract


class FitRelevance(Loss):
    """The mean squared difference of scores and relevance."""

    CONTRACT = LossContract(terms=("difference",), reads_relevance=True)

    def compute(self, scores, image, caption, relations):
        del image, caption
        return {"difference": ops.mean(ops.square(scores - relations["relevance"]))}


def fits_relevance(model: Retriever) -> Retriever:
    """The same model with another objective."""
    return Retriever(
        model.image_tower, model.text_tower, model.matcher, Objective([FitRelevance()], [1.0])
    )


def batch(size: int):
    """A batch whose relevance is not symmetric, so that rows and columns cannot be mixed up."""
    x, y = models.batch(size)
    y["relevance"] = np.random.default_rng(5).random((size, size)).astype(np.float32)
    return x, y
