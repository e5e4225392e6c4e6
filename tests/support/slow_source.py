"""A source that takes its time once it is told to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import datasets

from data_pipelines.photo_files import UnreadableError
from data_pipelines.sources import Caption, EncodedImage, Entry, Problems, Source

BROKEN = [("unreadable image", "1 is broken")]
"""What is skipped of the first four photos."""


class SlowSource(Source):
    """Photos of which one is broken; with a file `slow` one a second, which leaves a file."""

    name: Literal["slow"] = "slow"
    root: Path

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields training images."""
        del problems
        # Six shards of four: an executor of one process hands out three of them at once.
        for number in range(24):
            yield Entry(f"{number}", "train", (Caption(f"{number}#0", "a dog"),))

    def read(self, entry: Entry) -> EncodedImage:
        """Returns a photo."""
        if entry.key == "1":
            raise UnreadableError("1 is broken")
        if (self.root / "slow").exists():
            (self.root / "is_read").touch()
            time.sleep(1)
        return EncodedImage(datasets.encoded(datasets.picture(int(entry.key))))
