"""Trains a tiny SGRAF behind VSRN's reasoning on some replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import token_models

from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.heads import Tokens
from keras_xmr.matchers import SGRAF

STEPS = 1


def batches(replicas: int) -> tf.data.Dataset:
    """The shares of the replicas in turn, each padded to the longest of its own captions."""

    def shares() -> Iterator[Any]:
        for seed in range(STEPS):
            for number in range(replicas):
                x, y = tf.nest.map_structure(
                    lambda array, n=number: np.array_split(array, replicas)[n],
                    token_models.batch(9, seed),
                )
                longest = (x["caption"] > 0).sum(axis=1).max()
                yield x | {"caption": x["caption"][:, :longest]}, y

    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), token_models.batch(2)
    )
    signature[0]["caption"] = tf.TensorSpec([None, None], tf.int32)
    return tf.data.Dataset.from_generator(shares, output_signature=signature)


def trained(strategy: tf.distribute.Strategy, graph: bool = False) -> dict[str, np.ndarray]:
    """All weights after some steps, and statistics of batches, by number and name.

    Args:
        strategy: What shares the steps.
        graph: Whether the step is one graph for captions of any length, as in `fit`; of three
            replicas that takes four times as long.
    """
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        regions = keras.Input((token_models.REGIONS, token_models.WIDTH), name="image")
        keras.utils.set_random_seed(1)
        features, _ = VSRN(dimension=5, blocks=1).features(regions, InputSpec())
        image = keras.Model(regions, Tokens(6, name="head")(features), name="image_tower")
        matcher = SGRAF(similarity_dimension=4, dropout=0.3, captions_at_once=3)
        model = token_models.retriever(matcher, image_tower=image)
        model.compile(optimizer=keras.optimizers.SGD(0.01))
        model.optimizer.build(model.trainable_variables)

    own = batches(replicas)
    # As the training shares them: a device after the other takes the next.
    several = strategy.distribute_datasets_from_function(lambda context: own)
    data = iter(several if replicas > 1 else own)

    def step(shared: Any) -> Any:
        return strategy.run(model.train_step, (next(shared),))

    if graph:
        step = tf.function(step, autograph=False)
    for _ in range(STEPS):
        step(data)
    return {f"{n} {weight.name}": weight.numpy() for n, weight in enumerate(model.weights)}
