"""A loss that learns relevance, and a process that trains with it on some replicas.

usage: relevance_run.py REPLICAS FILE.npz
"""

from __future__ import annotations

import sys

import keras
import models
import numpy as np
import tensorflow as tf
from keras import ops
from replica_run import strategy_of

from keras_xmr.losses import Loss
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever


class FitRelevance(Loss):
    """The mean squared difference of scores and relevance."""

    PARTS = ("difference",)
    NEEDS_RELEVANCE = True

    def call(self, scores, image, caption, relations):
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


def main(replicas: int, path: str) -> None:
    with strategy_of(replicas).scope():
        model = fits_relevance(models.pcme())
        model.compile(optimizer=keras.optimizers.SGD(0.05))
    data = tf.data.Dataset.from_tensors(batch(8)).unbatch().batch(8, drop_remainder=True)
    model.fit(data.repeat(), steps_per_epoch=2, verbose=0)
    tested = model.evaluate(data, verbose=0, return_dict=True)
    weights = {str(n): weight.numpy() for n, weight in enumerate(model.trainable_weights)}
    np.savez(path, tested=tested["fit_relevance"], **weights)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
