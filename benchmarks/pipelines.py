"""How fast the data pipelines are: records written, photos decoded and augmented, pairs batched.

    python benchmarks/pipelines.py [--images FOLDER] [--count 1000]

Without a folder of JPEG files, photos of 500 x 375 pixels are made up. libjpeg can decode at a
half, which no pipeline here does: of a photo of 500 x 375, and of 640 x 480 (COCO), a half has
fewer pixels than the 256 to which the short side is resized. The row says what it would save on a
larger one.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from measuring import Peak, Row, compare
from PIL import Image

from data_pipelines.batches import training_batches
from data_pipelines.images import decode_for_training
from data_pipelines.options import DataOptions, ImageOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records
from data_pipelines.samplers import PairSampler
from data_pipelines.text import CaptionIds, WordTokenizer
from keras_xmr.utils.tables import table

REPEATS = 3
BATCH = 128
CAPTION = "a man in a red shirt walks his dog along a street of the old town"


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="folder of JPEG files")
    parser.add_argument("--count", type=int, default=1000, help="how many photos")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        photos = _photos(root, arguments.images, arguments.count)
        measure(root, photos)


def rows(smoke: bool = False) -> Iterator[Row]:
    """Photos decoded and augmented, batches of pairs, captions, and records, one of each."""
    count, batch = (8, 4) if smoke else (512, BATCH)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        photos = _photos(root, None, count)
        _write_captions(root, photos)
        with Peak() as peak:
            records, options = _prepared(root, photos, 0)
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
        large = [_enlarged(photo) for photo in photos[: min(count, 64)]]
        yield compare(
            "decoded at a half, resized",
            "a photo of 1,000 x 750",
            _stream(large, partial(_resized, ratio=2), count),
            _stream(large, _resized, count),
            "decoded whole, resized",
            items=count,
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
        texts = [caption.text for caption in train.captions]
        ids, chosen = CaptionIds.from_texts(texts, tokenizer), np.arange(batch)
        yield compare(
            "captions of a batch, words dropped",
            "a caption of 15 words",
            lambda: ids.batch(chosen, 0.1, np.random.rand(batch, 2, ids.longest)),
            _stream(texts, lambda text, number: tokenizer(text[None]), batch),
            "split and looked up one by one",
            items=batch,
        )


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


def _enlarged(photo: Path) -> bytes:
    """The photo of 1,000 x 750, as a JPEG file."""
    buffer = io.BytesIO()
    Image.open(photo).resize((1000, 750), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _resized(jpeg: tf.Tensor, number: tf.Tensor, ratio: int = 1) -> tf.Tensor:
    """The minimum that training needs: the largest square, 224 x 224, without aliases."""
    del number
    image = tf.io.decode_jpeg(jpeg, channels=3, ratio=ratio)
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


def _prepared(root: Path, photos: list[Path], repeat: int) -> tuple[Records, DataOptions]:
    options = DataOptions(
        source={
            "name": "csv",
            "root": root,
            "images": photos[0].parent.name,
            "val_share": 0,
            "test_share": 0,
        },
        records=root / f"records_{repeat}",
    )
    return prepare(options), options


def measure(root: Path, photos: list[Path]) -> None:
    """Measures on photos under `root`, and prints a table."""
    _write_captions(root, photos)
    written = []
    for repeat in range(REPEATS):
        begin = time.perf_counter()
        records, options = _prepared(root, photos, repeat)
        written.append(len(photos) / (time.perf_counter() - begin))

    jpegs = [photo.read_bytes() for photo in photos]
    stored = tf.data.Dataset.from_tensor_slices(jpegs).repeat()
    seeds = tf.data.Dataset.range(2**62)

    pairs = tf.data.Dataset.zip(stored, seeds)
    parallel = {"num_parallel_calls": tf.data.AUTOTUNE}
    train = records.split("train")
    tokenizer = WordTokenizer(sorted(set(CAPTION.split())), 64)
    rates = {
        "records written, images": written,
        "decoded alone": _rates(
            lambda: stored.map(lambda jpeg: tf.shape(tf.io.decode_jpeg(jpeg)), **parallel),
            len(photos),
        ),
        "decoded, cropped, mirrored (plain)": _rates(
            lambda: pairs.map(_straightforward, **parallel), len(photos)
        ),
        "decoded and augmented (ours)": _rates(
            lambda: pairs.map(partial(_augmented, options=options.image), **parallel), len(photos)
        ),
        "batches of pairs, with captions": _rates(
            lambda: training_batches(
                train, PairSampler(train, BATCH, 0), tokenizer, options.image, options.text
            ),
            max(len(photos) // BATCH, 1),
            BATCH,
        ),
    }
    alone = np.median(rates["decoded alone"])
    print(
        table(
            ["", "a second", "of decoding\nalone"],
            [
                [name, f"{np.median(values):,.0f}", f"{np.median(values) / alone:.2f}"]
                for name, values in rates.items()
            ],
        )
    )
    print(f"\n{len(photos)} photos, median of {REPEATS}, {os.cpu_count()} processors")


def _rates(make: Callable[[], tf.data.Dataset], count: int, size: int = 1) -> list[float]:
    """Items a second of a data set, after a warm-up."""
    elements: Iterator = iter(make().prefetch(tf.data.AUTOTUNE))
    for _ in itertools.islice(elements, max(count // 5, 2)):
        pass
    rates = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in itertools.islice(elements, count):
            pass
        rates.append(count * size / (time.perf_counter() - begin))
    return rates


def _photos(root: Path, folder: Path | None, count: int) -> list[Path]:
    """JPEG files under `root`: copies of those of a folder, or made up."""
    images = root / "images"
    images.mkdir()
    if folder is not None:
        for path in itertools.islice(sorted(folder.glob("*.jpg")), count):
            shutil.copy(path, images / path.name)
    else:
        random = np.random.default_rng(0)
        for number in range(count):
            coarse = random.integers(0, 256, (24, 32, 3), np.uint8)
            photo = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC))
            noisy = np.clip(photo + random.normal(0, 8, photo.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(images / f"{number:05}.jpg", quality=90)
    return sorted(images.iterdir())


if __name__ == "__main__":
    main()
