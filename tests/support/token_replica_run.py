"""Trains a tiny SGRAF behind VSRN's reasoning on some replicas, and writes what became of it.

Started as a process of its own, as `replica_run.py` is.

usage: token_replica_run.py REPLICAS FILE.npz
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import token_models
from replica_run import strategy_of

from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.heads import Tokens
from keras_xmr.matchers import SGRAF

STEPS = 3


def part(data: Any, number: int, replicas: int) -> Any:
    """The share of a replica, whose captions are padded to the longest of its own."""
    x, y = tf.nest.map_structure(lambda array: np.array_split(array, replicas)[number], data)
    longest = (x["caption"] > 0).sum(axis=1).max()
    x["caption"] = x["caption"][:, :longest]
    return tf.nest.map_structure(tf.constant, (x, y))


def main(replicas: int, path: str) -> None:
    strategy = strategy_of(replicas)
    with strategy.scope():
        regions = keras.Input((token_models.REGIONS, token_models.WIDTH), name="image")
        keras.utils.set_random_seed(1)
        features, _ = VSRN(dimension=5, blocks=1).features(regions, InputSpec())
        image = keras.Model(regions, Tokens(6, name="head")(features), name="image_tower")
        matcher = SGRAF(similarity_dimension=4, dropout=0.3, captions_at_once=3)
        model = token_models.retriever(matcher, image_tower=image)
        model.compile(optimizer=keras.optimizers.SGD(0.01))
        model.optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(data: Any) -> Any:
        return strategy.run(model.train_step, (data,))

    for seed in range(STEPS):
        data = token_models.batch(8, seed)
        if replicas > 1:
            step(
                strategy.experimental_distribute_values_from_function(
                    lambda context, data=data: part(
                        data, context.replica_id_in_sync_group, replicas
                    )
                )
            )
        else:
            step(part(data, 0, 1))
    weights = enumerate(model.weights)
    np.savez(path, **{f"{number} {weight.path}": weight.numpy() for number, weight in weights})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
