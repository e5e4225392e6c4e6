"""Base class of sources of many files: files, splits, captions."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    FolderSource,
    Problems,
    SourceError,
    Split,
    UnreadableError,
)

Share = Annotated[float, Field(ge=0, lt=1)]


class ShardedSource(FolderSource):
    """Base class of data sets in many files, each with many images."""

    train: str
    """Pattern of the training files, under `root`."""

    val: str | None = None
    """Pattern of the validation files. Without one (null), a share of the images of `train`
    validates, selected by a hash of their keys."""

    test: str | None = None
    """Pattern of the test files; likewise."""

    val_share: Share = 0.01
    """Share of validation images, without `val`."""

    test_share: Share = 0.01
    """Share of test images, without `test`."""

    def files(self) -> Iterator[tuple[Split, Path]]:
        """Yields all files, split by split, each in the order of their names.

        Raises:
            SourceError: If a pattern matches no files, or leads out of `root`.
        """
        for split in SPLITS:
            pattern = getattr(self, split)
            if pattern is None:
                continue
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise SourceError(f"data.source.{split}: {pattern} leads out of {self.root}")
            paths = sorted(self.root.glob(pattern))
            if not paths:
                raise SourceError(f"no file in {self.root} matches {pattern}")
            yield from ((split, path) for path in paths)

    def split_of(self, key: str, split: Split) -> Split:
        """Returns the split of an image in a file of a split."""
        if split != "train":
            return split
        val = 0 if self.val else self.val_share
        return draw_split(key, val, 0 if self.test else self.test_share)


def draw_split(key: str, val_share: float, test_share: float) -> Split:
    """Draws the split of an image from a hash of its key, independent of other images."""
    digest = hashlib.sha256(unicodedata.normalize("NFC", key).encode(errors="replace")).digest()
    draw = int.from_bytes(digest[:8]) / 2**64
    if draw < test_share:
        return "test"
    return "val" if draw < test_share + val_share else "train"


def parse_captions(key: str, value: Any, problems: Problems) -> tuple[Caption, ...]:
    """Parses the captions of an image: a text, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        problems.add("caption that is not text", f"{key}: {value!r:.80}")
        return ()
    if len(texts) == 1:
        return (Caption(key, texts[0]),)
    return tuple(Caption(f"{key}/{number}", text) for number, text in enumerate(texts))


def unreadable(path: Path, error: Exception) -> UnreadableError:
    """Builds the error of an image in a file that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UnreadableError(f"{path} cannot be read: {reason}")
