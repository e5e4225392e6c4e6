"""Cost of a large data set: writing records, opening them, the report, the first batches.

    python benchmarks/records.py [--images=1000000] [--captions=5] [--folder=FOLDER]

The photos are tiny and made up, so that what is measured is what comes with their number.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from measuring import Peak, Row
from PIL import Image

from data_pipelines.batches import training_batches
from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records, SplitRecords
from data_pipelines.report import data_report
from data_pipelines.samplers import PairSampler
from data_pipelines.sources import Caption, EncodedImage, Entry, Problems, Source
from data_pipelines.split_index import index_file
from data_pipelines.text import SPECIAL, CaptionIds, WordTokenizer
from keras_xmr.utils.tables import table

_TEXT = "a man in red shirt walks his dog along street of old town near green tree"
_WORDS = _TEXT.split()
_PHOTOS = 64


class TinyPhotos(Source):
    """Photos of 16 x 16 pixels, of which there are few, with captions that differ."""

    name: Literal["tiny_photos"] = "tiny_photos"
    images: int
    captions: int

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the photos; there is nothing to skip."""
        del problems
        number = itertools.count()
        for image in range(self.images):
            captions = (
                Caption(f"{n}", _caption(n)) for n in itertools.islice(number, self.captions)
            )
            yield Entry(f"{image:09d}.jpg", "train", tuple(captions), position=image)

    def read(self, entry: Entry) -> EncodedImage:
        """One of the few photos."""
        return EncodedImage(_JPEGS[entry.position % _PHOTOS])


def _caption(number: int) -> str:
    places = (number * 7919 + step * step * 31 for step in range(8 + number % 5))
    return " ".join(_WORDS[place % len(_WORDS)] for place in places)


def _jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


_JPEGS = [_jpeg(seed) for seed in range(_PHOTOS)]


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000, help="how many photos")
    parser.add_argument("--captions", type=int, default=5, help="how many captions each has")
    parser.add_argument("--folder", type=Path, help="where the records go; a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = list(measure(Path(folder), arguments.images, arguments.captions))
        size = (Path(folder) / "records" / index_file("train")).stat().st_size
    cells = [[row.what, f"{row.seconds:,.1f}", f"{(row.memory or 0) / 1e6:,.0f}"] for row in found]
    print(table(["", "seconds", "MB on top"], cells))
    print(f"\n{found[0].size}, one thread; the index has {size / 1e6:,.0f} MB")


def rows(smoke: bool = False) -> Iterator[Row]:
    """Records of many tiny photos."""
    with tempfile.TemporaryDirectory() as folder:
        yield from measure(Path(folder), 200 if smoke else 20_000, 5)


def measure(folder: Path, images: int, captions: int) -> Iterator[Row]:
    """Measures all of it, one after another."""
    size = f"{images:,} photos with {images * captions:,} captions"
    options = DataOptions.model_construct(
        source=TinyPhotos(images=images, captions=captions),
        records=folder / "records",
        prepare=PrepareOptions(workers=1),
    )

    def measured(what: str, work: Callable[[], object]) -> Row:
        with Peak() as peak:
            work()
        return Row(what, size, peak.seconds, memory=peak.bytes)

    yield measured("prepared", lambda: prepare(options))
    yield measured("opened", lambda: _open(options))
    yield measured("reported on", lambda: data_report(Records.open(options.records), options.text))
    yield measured("tokenised, and the first 20 batches", lambda: _train(options))


def _open(options: DataOptions) -> SplitRecords:
    return Records.open(options.records).split("train")


def _train(options: DataOptions) -> None:
    split, tokenizer = _open(options), WordTokenizer([*SPECIAL, *_WORDS], 64)
    captions = CaptionIds.from_texts(split.texts, tokenizer)
    sampler = PairSampler(split, 64, 0)
    batches = training_batches(
        split, sampler, tokenizer, options.image, options.text, captions=captions
    )
    for _ in batches.take(20):
        pass


if __name__ == "__main__":
    main()
