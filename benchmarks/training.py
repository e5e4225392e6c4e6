"""How fast a config trains: steps and pairs a second, and what its parts cost.

    python benchmarks/training.py [--config scenes_pcme] [--steps 100] [--set key=value ...]

The records must be there (the command `prepare`). Every part is timed alone, compiled, forward and
backward; the input pipeline runs alone as well, so that one sees what waits for what.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import training_batches
from data_pipelines.records import Records
from data_pipelines.samplers import PairSampler
from data_pipelines.tables import table
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.registry import components
from keras_xmr.model.build import build_model, build_tokenizer
from keras_xmr.model.relations import relations


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
