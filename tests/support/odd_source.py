"""A source that ends the process that reads it, or takes its time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import datasets

from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.prepare import prepare
from data_pipelines.sources import Caption, EncodedImage, Entry, Problems, Source

PHOTO = datasets.encoded(datasets.picture(1))


class OddSource(Source):
    """Photos that are all the same; leaves a file with the number of the process that reads it."""

    name: Literal["odd"] = "odd"
    root: Path
    does: Literal["dies", "waits"]

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields four shards of training images."""
        del problems
        for number in range(16):
            yield Entry(f"{number}", "train", (Caption(f"{number}#0", "a dog"),))

    def read(self, entry: Entry) -> EncodedImage:
        """Returns a photo."""
        (self.root / f"{os.getpid()}.process").touch()
        if self.does == "dies" and entry.key == "5":
            os._exit(3)
        if self.does == "waits":
            time.sleep(1)
        return EncodedImage(PHOTO)


def odd_options(folder: Path, does: str) -> DataOptions:
    """Options of records that two processes write."""
    return DataOptions.model_construct(
        source=OddSource(root=folder, does=does),
        records=Path(folder, "records"),
        images_per_shard=4,
        prepare=PrepareOptions(workers=2),
    )


def prepare_odd(folder: Path, does: str) -> None:
    """Writes them."""
    prepare(odd_options(folder, does))


def wait_for_process(folder: Path) -> str:
    """Waits until a process reads the source, and returns its number."""
    for _ in range(1200):
        for path in folder.glob("*.process"):
            return path.stem
        time.sleep(0.1)
    raise TimeoutError("no process has read the source")
