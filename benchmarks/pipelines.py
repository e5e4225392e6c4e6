"""Data pipelines: photos written to records, decoded and augmented, pairs batched.

The photos are synthetic, of 500 x 375 pixels, with five captions each.
"""

from __future__ import annotations

import csv
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from measuring import Peak, Row, compare, show
from PIL import Image

from data_pipelines.batches import training_batches
from data_pipelines.image_decoding import decode_for_training
from data_pipelines.options import DataOptions, ImageOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records
from data_pipelines.samplers import PairSampler
from data_pipelines.text import WordTokenizer

BATCH = 128
CAPTION = "a man in a red shirt walks his dog along a street of the old town"


def rows(smoke: bool = False) -> Iterator[Row]:
    """Photos decoded and augmented, batches of pairs, and records, one of each."""
    count, batch = (8, 4) if smoke else (512, BATCH)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        photos = _photos(root, count)
        _write_captions(root, photos)
        with Peak() as peak:
            records, options = _prepared(root, photos)
        written = peak.seconds / count
        jpegs = [photo.read_bytes() for photo in photos]
        alone, plain, ours = (
            _stream(jpegs, work, count)
            for work in (_decoded, _straightforward, partial(_augmented, options=options.image))
        )
        size = "a photo of 500 x 375"
        decoding = compare("", "", alone).seconds / count
        bound = {"bound": decoding, "bound_by": "decoding alone"}
        yield compare(
            "decoded, cropped, resized, mirrored, erased",
            size,
            ours,
            plain,
            "decoded, cropped, resized, mirrored by tf.image",
            items=count,
            **bound,
        )
        resizing = compare("", "", _stream(jpegs, _resized, count)).seconds / count
        yield compare(
            "the same",
            size,
            ours,
            items=count,
            bound=resizing,
            bound_by="decoding and one antialiased resize",
        )
        train = records.split("train")
        tokenizer = WordTokenizer(sorted(set(CAPTION.split())), 64)
        batches = training_batches(
            train, PairSampler(train, batch, 0), tokenizer, options.image, options.text
        )
        stream = iter(batches)
        steps = max(count // batch, 1)
        yield compare(
            "batches of pairs, with captions",
            size,
            lambda: [next(stream) for _ in range(steps)],
            items=steps * batch,
            **bound,
        )
        yield Row("records written", size, written, memory=peak.bytes)


def _stream(items: list[bytes] | list[str], work: Callable, count: int) -> Callable[[], None]:
    """A function that takes the next of an endless stream of photos or captions."""
    stored = tf.data.Dataset.from_tensor_slices(items).repeat()
    pairs = tf.data.Dataset.zip(stored, tf.data.Dataset.range(2**62))
    elements = iter(pairs.map(work, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))

    def take() -> None:
        for _ in itertools.islice(elements, count):
            pass

    return take


def _decoded(jpeg: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    del number
    return tf.shape(tf.io.decode_jpeg(jpeg))


def _resized(jpeg: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The minimum that training needs: the largest square, 224 x 224, without aliases."""
    del number
    image = tf.io.decode_jpeg(jpeg, channels=3)
    side = tf.reduce_min(tf.shape(image)[:2])
    return tf.image.resize(image[:side, :side], (224, 224), antialias=True)


def _augmented(jpeg: tf.Tensor, number: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    return decode_for_training(jpeg, options, tf.stack([number, number]))


def _straightforward(jpeg: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    del number
    image = tf.io.decode_jpeg(jpeg, channels=3)
    image = tf.image.random_crop(image, tf.minimum(tf.shape(image), [224, 224, 3]))
    image = tf.image.resize(image, (224, 224))
    return tf.cast(tf.image.random_flip_left_right(image), tf.uint8)


def _write_captions(root: Path, photos: list[Path]) -> None:
    with (root / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        table_rows = csv.writer(file)
        table_rows.writerow(["image", "caption"])
        table_rows.writerows([photo.name, CAPTION] for photo in photos for _ in range(5))


def _prepared(root: Path, photos: list[Path]) -> tuple[Records, DataOptions]:
    options = DataOptions(
        source={
            "name": "csv",
            "root": root,
            "images": photos[0].parent.name,
            "val_share": 0,
            "test_share": 0,
        },
        records=root / "records",
    )
    return prepare(options), options


def _photos(root: Path, count: int) -> list[Path]:
    """JPEG files under `root`, made up."""
    images, random = root / "images", np.random.default_rng(0)
    images.mkdir()
    for number in range(count):
        coarse = random.integers(0, 256, (24, 32, 3), np.uint8)
        photo = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC))
        noisy = np.clip(photo + random.normal(0, 8, photo.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(images / f"{number:05}.jpg", quality=90)
    return sorted(images.iterdir())


if __name__ == "__main__":
    show(rows())
