"""Time saved by computing the features of a frozen image encoder once.

The same model takes training steps from pixels, and then from features, in one process. The steps
of both are timed with their input pipeline, and the computation of the features is compared with
the encoder on pixels in memory. Weights are random, which does not change times.

usage: python benchmarks/frozen_features.py [--architecture=ResNet50] [--size=224] [--images=256]
           [--batch=32] [--steps=12]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from measuring import Peak, Row, compare

from data_pipelines.batches import training_batches
from data_pipelines.prepare import prepare
from data_pipelines.records import Records
from data_pipelines.samplers import PairSampler
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.schema import Config
from keras_xmr.model.build import build_model, build_tokenizer
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of, tower_on_features
from keras_xmr.runs.frozen_features import ImageEncoder, features_for_training
from keras_xmr.training.phases import freeze
from keras_xmr.utils.tables import table

_WARM_UP = 3
AT_MOST = 1.1
"""How many times the time of its encoder a photo may take on its way to features."""


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", default="ResNet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(options, Path(folder))
        records = prepare(config.data)
        model = make_model(config, records)
        pixels = step_seconds(model, config, records, options.steps)
        start = time.perf_counter()
        features = features_for_training(ImageEncoder(model.image_tower, records, config))
        computing = time.perf_counter() - start
        model.feature_tower = tower_on_features(model.image_tower)
        kept = step_seconds(model, config, features, options.steps)
        size = sum(path.stat().st_size for path in features.folder.glob("*.tfrecord"))
    report(options, pixels, kept, computing, size)


def rows(smoke: bool = False) -> Iterator[Row]:
    """A training step on a frozen network: on features, and from pixels."""
    options = argparse.Namespace(architecture="ResNet50", size=224, images=256, batch=32, steps=4)
    encoder = []
    if smoke:
        options = argparse.Namespace(architecture="CNN", size=32, images=4, batch=2, steps=1)
        encoder = [
            "model.image.encoder={name: small_cnn, channels: [8]}",
            "model.text.pooling=mean",
            "model.dimension=8",
        ]
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(options, Path(folder), *encoder)
        records = prepare(config.data)
        model = make_model(config, records)
        yield photos_to_features(model, config, records, options)
        pixels = step_seconds(model, config, records, options.steps)
        features = features_for_training(ImageEncoder(model.image_tower, records, config))
        model.feature_tower = tower_on_features(model.image_tower)
        kept = step_seconds(model, config, features, options.steps)
    size = f"B {options.batch}, {options.architecture} at {options.size}"
    yield Row("a step on features computed once", size, kept, pixels, "the same from pixels")


def photos_to_features(
    model: Retriever, config: Config, records: Records, options: argparse.Namespace
) -> Row:
    """Photos decoded, encoded and stored, compared with the encoder alone."""
    network = tf.function(features_of(model.image_tower), autograph=False)
    tower = model.image_tower.input
    pixels = tf.cast(tf.fill((options.batch, *tower.shape[1:]), 100), tower.dtype)
    alone = compare("", "", lambda: network(pixels).numpy(), items=options.batch).seconds
    encoder = ImageEncoder(model.image_tower, records, config)
    with Peak() as peak:
        encoder.write(["train"])
    return Row(
        "photos to features, a photo",
        f"{options.architecture} at {options.size}, {options.images} photos",
        peak.seconds / options.images,
        memory=peak.bytes,
        bound=alone,
        bound_by="the encoder on pixels that are there",
        processor=peak.cpu_seconds / options.images,
        at_most=AT_MOST,
        why="Decoding and writing take turns with the encoder on the same processors, and tracing "
        "the graph of the first batch is in it.",
    )


def make_config(options: argparse.Namespace, folder: Path, *changes: str) -> Config:
    """PCME on scenes of the size of photos, with a frozen network."""
    return load_config(
        find_config("scenes_pcme"),
        [
            f"data.records={folder}",
            f"data.source={{name: scenes, train: {options.images}, val: 0, test: 0, "
            f"image_size: {options.size}}}",
            f"data.image={{size: {options.size}, resize: {options.size}, crop: center, "
            "flip: false, cutout: 0}",
            "model.image.encoder={name: keras_applications, "
            f"architecture: {options.architecture}, weights: null}}",
            "model.dimension=1024",
            f"train.batch_size={options.batch}",
            "train.phases=[{epochs: 1, learning_rate: 2e-4, freeze: [image.encoder]}]",
            "train.precompute_features=true",
            "evaluation.batch_size=32",
            *changes,
        ],
    )


def make_model(config: Config, records: Records) -> Retriever:
    """The model, its encoder frozen, as a training has it."""
    keras.utils.set_random_seed(config.seed)
    model = build_model(config, records, build_tokenizer(config, records), pretrained=True)
    freeze(model, config.train.phases[0].freeze)
    return model


def step_seconds(model: Retriever, config: Config, records: Records, steps: int) -> float:
    """Median seconds of a step of `fit`, after steps that compile."""
    train = records.split("train")
    sampler = PairSampler(train, config.train.batch_size, config.seed)
    tokenizer = build_tokenizer(config, records)
    batches = training_batches(train, sampler, tokenizer, config.data.image, config.data.text)
    model.compile(keras.optimizers.Adam(config.train.phases[0].learning_rate))
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    model.fit(batches, steps_per_epoch=steps + _WARM_UP, verbose=0, callbacks=[clock])
    return float(np.median(np.diff(ends[_WARM_UP - 1 :])))


def report(
    options: argparse.Namespace, pixels: float, features: float, computing: float, size: int
) -> None:
    """Prints the times, and when computing has paid for itself."""
    rows = [
        [name, f"{1000 * seconds:.0f}", f"{options.batch / seconds:.1f}"]
        for name, seconds in (("pixels", pixels), ("features", features))
    ]
    print(
        f"{options.architecture} at {options.size} pixels, frozen; batches of {options.batch}; "
        f"{os.cpu_count()} processors\n"
    )
    print(table(["training reads", "ms a step", "pairs\na second"], rows))
    an_image = computing / options.images
    paid = an_image / ((pixels - features) / options.batch)
    print(
        f"\n{pixels / features:.1f} times as fast. Computing the features takes "
        f"{1000 * an_image:.0f} ms an image, once: as much as is saved on {paid:.1f} pairs of it "
        f"(COCO has 5 an epoch).\n{size / options.images / 1000:.0f} kB an image on disk"
    )


if __name__ == "__main__":
    main()
