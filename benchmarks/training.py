"""How fast a config trains: steps and pairs per second, and the cost of its parts.

    python benchmarks/training.py [--config scenes_pcme] [--steps 100] [--set key=value ...]

The records must be there (the command `prepare`). Every part is timed alone, compiled, forward and
backward; the input pipeline runs alone as well, so that one sees what waits for what.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import plain_losses
import sgraf
import tensorflow as tf
from measuring import Row, compare

from data_pipelines.batches import training_batches
from data_pipelines.records import Records
from data_pipelines.samplers import PairSampler
from data_pipelines.text import WordTokenizer
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.registry import components
from keras_xmr.model.build import build_model, build_tokenizer
from keras_xmr.model.objective import relations
from keras_xmr.utils.tables import table

Formula = Callable[[Any, Any], Any]


def rows(smoke: bool = False) -> Iterator[Row]:
    """A whole step of four methods on frozen features, with Adam."""
    for name, (config, formula, sizes) in STEPS.items():
        for batch, compared in ((3, True),) if smoke else sizes:
            yield _step_row(name, config, formula if compared else None, batch, smoke)


def _step_row(name: str, config: str, formula: Formula | None, batch: int, smoke: bool) -> Row:
    regions, width, dimension = (3, 8, 8) if smoke else (36, 2048, 1024)
    model = _model_on_features(config, regions, width, dimension)
    random = np.random.default_rng(0)
    ids = random.integers(1, 99, (batch, 2 if smoke else 16)).astype(np.int32)
    x = {"image": random.random((batch, regions, width), np.float32), "caption": ids}
    x = {key: tf.constant(value) for key, value in x.items()}
    y = {"image_id": tf.range(batch), "caption_id": tf.range(batch)}
    model.compile(keras.optimizers.Adam(1e-6))
    model.optimizer.build(model.trainable_variables)
    ours = tf.function(lambda: model.train_step((x, y))["loss"], autograph=False)
    plain = None if formula is None else _plain_step(model, x, formula)
    return compare(
        f"a step of {name}",
        f"B {batch}, {regions} regions, D {dimension}",
        lambda: ours().numpy(),
        plain and (lambda: plain().numpy()),
        "the printed formula after the same towers",
    )


def _model_on_features(config: str, regions: int, width: int, dimension: int) -> Any:
    found = load_config(
        find_config(config),
        ["data.source.root=features", f"model.dimension={dimension}"]
        + (
            ["model.matcher.similarity_dimension=8"] if dimension == 8 and "sgraf" in config else []
        ),
    )
    keras.utils.set_random_seed(0)
    records: Any = SimpleNamespace(holds="regions", region_shape=(regions, width))
    tokenizer = WordTokenizer([f"word{n}" for n in range(100)], 64)
    return build_model(found, records, tokenizer, pretrained=False)


def _plain_step(model: Any, x: Any, formula: Formula) -> Any:
    """A step with the loss as it is printed."""
    optimizer = keras.optimizers.Adam(1e-6)
    variables = [*model.image_tower.trainable_variables, *model.text_tower.trainable_variables]
    optimizer.build(variables)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = formula(model, model(x, training=True))
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        optimizer.apply(gradients, variables)
        return loss

    return tf.function(step, autograph=False)


def _pcme(model: Any, embedded: Any) -> Any:
    sampled = {}
    for side, embedding in embedded.items():
        noise = tf.random.normal((*embedding["mean"].shape[:1], 7, embedding["mean"].shape[1]))
        spread = tf.exp(0.5 * embedding["log_variance"])[:, None]
        sampled[side] = embedding | {"samples": embedding["mean"][:, None] + spread * noise}
    return plain_losses.soft_contrastive(sampled)


def _msrm(model: Any, embedded: Any) -> Any:
    dimension = embedded["image"]["mean"].shape[1]
    weights = {"weights": {"thetas": [tf.eye(dimension)] * 4}}
    loss = 0.8 * plain_losses.mahalanobis_contrastive(embedded)
    return loss + plain_losses.hypergraph_contrastive(embedded | weights)


def _dvse(model: Any, embedded: Any) -> Any:
    masked = embedded["image"]["residuals"] * embedded["image"]["mask"][:, None]
    return 0.6 * plain_losses.variance_aware_weighting(embedded) + 0.4 * plain_losses.orthogonality(
        masked
    )


def _sgraf(model: Any, embedded: Any) -> Any:
    """Caption by caption, as the released code scores them (Diao et al. 2021)."""
    modules = [model.matcher.saf, model.matcher.sgr]
    images = [module.prepare(embedded["image"], "image") for module in modules]
    captions = embedded["caption"]
    scores = [
        sgraf.one_caption(modules, images, {k: v[n : n + 1] for k, v in captions.items()})
        for n in range(captions["tokens"].shape[0])
    ]
    scores = tf.stack(scores, axis=1)
    return sum(map(plain_losses.triplet_hardest, (scores, tf.transpose(scores))))


STEPS: dict[str, tuple[str, Formula, tuple[tuple[int, bool], ...]]] = {
    "PCME": ("csv_pcme_regions", _pcme, ((128, False), (32, True))),
    "MSRM": ("csv_msrm_regions", _msrm, ((128, True),)),
    "DVSE": ("csv_dvse_regions", _dvse, ((128, True),)),
    "SGRAF": ("coco_sgraf", _sgraf, ((64, False), (16, True))),
}
"""By method: the config, the objective as it is printed, and at which batches, and whether beside
that."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="scenes_pcme")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--set", action="append", default=[], metavar="key=value")
    arguments = parser.parse_args()
    config = load_config(find_config(arguments.config), arguments.set)
    records = Records.open(config.data.records)
    tokenizer = build_tokenizer(config, records)
    model = build_model(config, records, tokenizer, pretrained=True)
    optimizer = config.train.optimizer
    model.compile(
        components("optimizer")[optimizer.name].load()(
            learning_rate=config.train.phases[0].learning_rate, **optimizer.options()
        )
    )
    train = records.split("train")
    sampler = PairSampler(train, config.train.batch_size, config.seed)
    batches = training_batches(train, sampler, tokenizer, config.data.image, config.data.text)

    seconds = {"whole step, with input": _fit(model, batches, arguments.steps)}
    stream = iter(batches)
    next(stream)
    seconds["input alone"] = _time(lambda: next(stream), arguments.steps)
    x, y = next(iter(batches))
    embedded = model(x, training=True)

    @tf.function
    def image() -> Any:
        return _backward(lambda: model.image_tower(x["image"], training=True), model.image_tower)

    @tf.function
    def text() -> Any:
        return _backward(lambda: model.text_tower(x["caption"], training=True), model.text_tower)

    @tf.function
    def objective() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(embedded)
            seed = tf.constant([0, 0])
            image = model.matcher.prepare(embedded["image"], "image", seed)
            caption = model.matcher.prepare(embedded["caption"], "caption", seed)
            scores = model.matcher(image, caption)
            matches = relations(y, model.judgements)
            loss, _ = model.objective(scores, image, caption, matches)
        return tape.gradient(loss, embedded)

    for name, part in (
        ("image tower alone", image),
        ("text tower alone", text),
        ("matcher and losses alone", objective),
    ):
        seconds[name] = _time(part, arguments.steps)
    batch = config.train.batch_size
    rows = [
        [name, f"{1000 * value:.1f}", f"{1 / value:.1f}", f"{batch / value:,.0f}"]
        for name, value in seconds.items()
    ]
    print(table([config.name, "ms", "steps/s", "pairs/s"], rows))
    print(
        f"\nbatch {batch}, captions of {x['caption'].shape[1]} positions; "
        f"{os.cpu_count()} processors"
    )


def _backward(forward: Callable[[], Any], tower: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(value**2) for value in forward().values())
    return tape.gradient(loss, tower.trainable_variables)


def _fit(model: Any, batches: tf.data.Dataset, steps: int) -> float:
    """Median seconds of a step of `fit`, after steps that compile."""
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    model.fit(batches, epochs=1, steps_per_epoch=steps + 10, verbose=0, callbacks=[clock])
    return float(np.median(np.diff(ends[10:])))


def _time(work: Callable[[], Any], count: int) -> float:
    """Median seconds of a call, after calls that compile."""
    for _ in range(3):
        work()
    times = []
    for _ in itertools.repeat(None, count):
        begin = time.perf_counter()
        tf.nest.flatten(work(), expand_composites=True)[0].numpy()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


if __name__ == "__main__":
    main()
