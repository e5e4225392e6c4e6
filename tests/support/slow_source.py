"""A source that takes its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import datasets

from data_pipelines.sources import Caption, EncodedImage, Entry, Problems, Source


class SlowSource(Source):
    """Photos that are all the same, one a second; leaves a file when it is read."""

    name: Literal["slow"] = "slow"
    root: Path

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields training images."""
        del problems
        for number in range(16):
            yield Entry(f"{number}", "train", (Caption(f"{number}#0", "a dog"),))

    def read(self, entry: Entry) -> EncodedImage:
        """Returns a photo."""
        del entry
        (self.root / "is_read").touch()
        time.sleep(1)
        return EncodedImage(datasets.encoded(datasets.picture(1)))
