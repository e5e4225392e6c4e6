"""Trains tiny models on some replicas, and writes what became of them.

Several replicas are started as a process of their own: TensorFlow takes no two sizes of a group of
devices in one. With TF_CONFIG in the environment it is one of several workers.

usage: replica_run.py REPLICAS everything|half|graph FILE.npz
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import graphs
import keras
import methods
import models
import numpy as np
import relevance_run
import tensorflow as tf
import token_models

from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.heads import Tokens
from keras_xmr.losses import KLDivergence, SmoothAP, gather
from keras_xmr.matchers import SAF, Cosine
from keras_xmr.model.retriever import Retriever

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "even": ((9,), {"clip_norm": 0.5}),
    # With classes most queries have several positives. A second step, as the warm-up of one ends.
    "set": ((4, 4), {"several": True, "judgements": "classes", "clip_norm": 1.0}),
}
"""Sizes of the batches, and the options of the model."""

SET = "pvse", ("triplet", "smooth_ap", "mmd", "uniformity", "set_uniformity")
"""The model and losses of `methods` in the case "set"."""

PARTS_OF_HALF = 2

HALF: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "half": ((8,) * (PARTS_OF_HALF + 1), {"model": "points", "clip_norm": 2.0})
}
"""In half precision: gradients overflow in each part of a batch in turn, then in none."""


def strategy_of(replicas: int) -> tf.distribute.Strategy:
    """That of a process which has done nothing with TensorFlow yet."""
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    # A graph that runs twice is not worth optimising: that takes a sixth of the time here.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # Those of several workers are collective; of one process they take twice the time.
    devices = [f"/cpu:{n}" for n in range(replicas)]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def make(case: str, options: dict[str, Any]) -> Retriever:
    """The model of a case."""
    if case != "set":
        return getattr(models, options.pop("model", "pcme"))(**options)
    return methods.build(methods.config(*SET), **options)


def steps(
    strategy: tf.distribute.Strategy, case: str, sizes: tuple[int, ...], options: dict[str, Any]
):
    """The weights before steps of plain gradient descent, and the model after them."""
    several = options.pop("several", False)
    half, replicas = case in HALF, strategy.num_replicas_in_sync
    if case == "even" and replicas > 1:
        options["gradient_caching"] = 3  # Changes nothing.
    with strategy.scope():
        model = make(case, options)
        optimizer: Any = keras.optimizers.SGD(0.05)
        if half:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)
        model.compile(optimizer=optimizer)
        model.optimizer.build(model.trainable_variables)
        if half:
            mute_first_feature(model)
    before = [weight.numpy() for weight in model.trainable_weights]
    # A graph of a few steps takes longer than to do without it.
    for seed, size in enumerate(sizes):
        data = models.several(size, seed) if several else models.batch(size, seed)
        if half and seed < PARTS_OF_HALF:
            np.array_split(data[0]["image"], PARTS_OF_HALF)[seed][..., 0] = 3e4
        if replicas > 1:
            data = shared(strategy, data, replicas)
        strategy.run(model.train_step, (data,))
    return before, model


def mute_first_feature(model: Retriever) -> None:
    """However large the first feature of images is, embeddings stay as they are.

    The gradient by its weights does not: scaled, in half precision, it overflows.
    """
    kernel = model.image_tower.get_layer("encoder").kernel
    kernel.assign(kernel.numpy() * np.array([[0.0], [1.0], [1.0], [1.0]]))


def shared(strategy: tf.distribute.Strategy, data: Any, replicas: int) -> Any:
    """A batch that the replicas share as evenly as it goes: 7 on 3 is 3, 2, 2."""

    def part(context: Any) -> Any:
        number = context.replica_id_in_sync_group
        return tf.nest.map_structure(
            lambda array: tf.constant(np.array_split(array, replicas)[number]), data
        )

    return strategy.experimental_distribute_values_from_function(part)


def fit(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """The logs of `fit`, and what it made of the weights; a loss needs the relevance."""
    with strategy.scope():
        losses = [KLDivergence(), relevance_run.FitRelevance()]
        model = models.gaussian_model(Cosine(), losses, [0.01, 1.0])
        model.compile(optimizer=keras.optimizers.SGD(0.05))
    data = tf.data.Dataset.from_tensors(relevance_run.batch(9)).unbatch()
    data = data.batch(9, drop_remainder=True)
    history = model.fit(data.repeat(), epochs=2, steps_per_epoch=2, verbose=0)
    model.run_eagerly = True  # Sooner done than traced.
    tested = model.evaluate(data, verbose=0, return_dict=True)
    logs = {f"fit/{name}": values[-1] for name, values in history.history.items()}
    after = {f"relevance/{n}": weight.numpy() for n, weight in enumerate(model.trainable_weights)}
    return logs | after | {"relevance/tested": tested["fit_relevance"]}


def results(strategy: tf.distribute.Strategy, cases: dict[str, Any]) -> dict[str, Any]:
    """What becomes of the cases of `CASES` or `HALF`, by the names of both and of the numbers."""
    found: dict[str, Any] = {}
    for name, (sizes, options) in cases.items():
        keras.config.set_dtype_policy("mixed_float16" if name in HALF else "float32")
        try:
            before, model = steps(strategy, name, sizes, dict(options))
        finally:
            keras.config.set_dtype_policy("float32")
        for number, (start, weight) in enumerate(zip(before, model.trainable_weights, strict=True)):
            found[f"{name}/before/{number}"] = start
            found[f"{name}/after/{number}"] = weight.numpy()
        found[f"{name}/values"] = model.last_values.numpy()
        found[f"{name}/step"] = model.global_step.numpy()
        if name in HALF:
            found[f"{name}/scale"] = model.optimizer.dynamic_scale.numpy()
    return found


def shares(replicas: int) -> tf.data.Dataset:
    """The shares of the replicas in turn, each padded to the longest of its own captions."""

    def take() -> Iterator[Any]:
        batch = token_models.batch(5)
        for number in range(replicas):
            x, y = tf.nest.map_structure(
                lambda array, n=number: np.array_split(array, replicas)[n], batch
            )
            longest = (x["caption"] > 0).sum(axis=1).max()
            yield x | {"caption": x["caption"][:, :longest]}, y

    signature = tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), token_models.batch(2)
    )
    signature[0]["caption"] = tf.TensorSpec([None, None], tf.int32)
    return tf.data.Dataset.from_generator(take, output_signature=signature)


def tokens(strategy: tf.distribute.Strategy, graph: bool = False) -> dict[str, Any]:
    """The weights of SAF behind VSRN's reasoning after a step, and statistics of the batch.

    As a graph for captions of any length, as in `fit`, it takes four times as long.
    """
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        regions = keras.Input((token_models.REGIONS, token_models.WIDTH), name="image")
        keras.utils.set_random_seed(1)
        features, _ = VSRN(dimension=5, blocks=1).features(regions, InputSpec())
        image = keras.Model(regions, Tokens(6, name="head")(features), name="image_tower")
        matcher = SAF(similarity_dimension=4, dropout=0.3, captions_at_once=4)
        model = token_models.retriever(matcher, image_tower=image)
        model.compile(optimizer=keras.optimizers.SGD(0.01))
        model.optimizer.build(model.trainable_variables)
    own = shares(replicas)
    # As the training shares them: a device after the other takes the next.
    several = strategy.distribute_datasets_from_function(lambda context: own)

    def step(shared: Any) -> Any:
        return strategy.run(model.train_step, (next(shared),))

    step = tf.function(step, autograph=False) if graph else step
    step(iter(several if replicas > 1 else own))
    return {f"tokens/{n} {weight.name}": weight.numpy() for n, weight in enumerate(model.weights)}


def gathered(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """A loss of embeddings that are gathered, on each replica, and the gradients of two maps."""
    replicas, random = strategy.num_replicas_in_sync, np.random.default_rng(0)
    images, captions = (random.normal(size=(n, 8)).astype("f") for n in (6, 12))
    # Two or three replicas have as many images each, and all captions of these.
    rows = np.array([0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5])
    maps, loss = [random.normal(size=(8, 6)).astype("f") for _ in range(2)], SmoothAP()

    def step(images: Any, captions: Any, rows: Any) -> Any:
        tensors = [tf.convert_to_tensor(one) for one in maps]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            *sides, rows = gather(images @ tensors[0], captions @ tensors[1], rows)
            # As matchers take tokens: a gradient of slices, which is no dense tensor.
            value = loss(*(tf.gather(one, tf.range(one.shape[0])) for one in sides), rows)
        # As optimizers do: the sum, of the loss divided by the number of replicas.
        slopes = [slope / replicas for slope in tape.gradient(value, tensors)]
        return value, tf.distribute.get_replica_context().all_reduce("sum", slopes)

    if replicas > 1:
        rows %= len(images) // replicas
        images, captions, rows = shared(strategy, (images, captions, rows), replicas)
    values, slopes = strategy.run(tf.function(step, autograph=False), args=(images, captions, rows))
    local = strategy.experimental_local_results
    found = {f"gathered/slope {n}": local(slope)[0].numpy() for n, slope in enumerate(slopes)}
    assert all(np.abs(slope).max() > 1e-3 for slope in found.values())
    values = [value.numpy() for value in local(values)]
    return found | {"gathered/first": values[0], "gathered/last": values[-1]}


def everything(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """What becomes of all cases, of `fit`, of a model of tokens, and of a gathered loss."""
    return results(strategy, CASES | HALF) | fit(strategy) | tokens(strategy) | gathered(strategy)


def half(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """What becomes of the cases in half precision alone."""
    return results(strategy, HALF)


def graph(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """What becomes of a model of tokens whose step is a graph."""
    return tokens(strategy, graph=True)


PARTS = {part.__name__: part for part in (everything, half, graph)}


if __name__ == "__main__":
    graphs.optimize(False)
    np.savez(sys.argv[3], **PARTS[sys.argv[2]](strategy_of(int(sys.argv[1]))))
