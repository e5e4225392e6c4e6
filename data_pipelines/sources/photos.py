"""Base class of sources of photos as files: splits, and ids of captions."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from data_pipelines.sources.base import SPLITS, Problems, Source, Split
from data_pipelines.sources.sharded import Share, draw_split
from data_pipelines.sources.text_files import csv_rows

_SPLIT_NAMES: dict[str, Split] = {"valid": "val", "validation": "val", "dev": "val"}


class PhotosSource(Source):
    """Base class of sources of photos as files under a folder."""

    root: Path
    """Folder that holds everything below."""

    splits: str | None = None
    """CSV file under `root` with the columns `image,split`, where split is train, val or test.
    Without one (null), the split of a photo is drawn from a hash of its name, so it does not
    change when photos are added."""

    val_share: Share = 0.1
    """Share of validation photos, without a split file."""

    test_share: Share = 0.1
    """Share of test photos, without a split file."""

    def read_splits(self, problems: Problems) -> dict[str, Split] | None:
        """Reads the split of each photo from the split file; returns None without such a file.

        Raises:
            SourceError: If the file is missing or malformed.
        """
        if self.splits is None:
            return None
        path = self.root / self.splits
        splits: dict[str, Split] = {}
        for number, row in csv_rows(path, ("image", "split"), problems):
            image, written = row["image"].strip(), row["split"].strip()
            split = _SPLIT_NAMES.get(written.lower(), written.lower())
            if split not in SPLITS:
                problems.add("unknown split", f"{path}:{number}: {written!r}, not {SPLITS}")
            elif splits.setdefault(image, split) != split:
                problems.add("image in two splits", f"{path}:{number}: {image}")
        return splits

    def split_of(
        self, image: str, splits: Mapping[str, Split] | None, problems: Problems
    ) -> Split | None:
        """Returns the split of a photo, or None, which is counted, if the split file lacks it."""
        if splits is None:
            return draw_split(image, self.val_share, self.test_share)
        if image not in splits:
            problems.add("image without a split", f"{image} is not in {self.splits}")
        return splits.get(image)


def hash_caption_id(image: str, text: str) -> str:
    """Returns an id for a caption without one: 64 bits of a hash, in hexadecimal digits."""
    content = unicodedata.normalize("NFC", f"{image}\n{text.strip()}")
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]
