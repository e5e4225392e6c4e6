"""What sources of many files have in common: which files, and which split an image is of."""

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
    Problems,
    Source,
    SourceError,
    Split,
    UnreadableError,
)

Share = Annotated[float, Field(ge=0, lt=1)]


class ShardedSource(Source):
    """A data set in many files, each with many images."""

    root: Path
    """Folder that holds everything below."""

    train: str
    """The files that train, a pattern under `root`."""

    val: str | None = None
    """The files that validate. Without any (null), a part of the images of `train` does, by a hash
    of their keys."""

    test: str | None = None
    """The files that test; the same."""

    val_share: Share = 0.01
    """Part of the images that validate, without `val`."""

    test_share: Share = 0.01
    """Part of the images that test, without `test`."""

    def files(self) -> Iterator[tuple[Split, Path]]:
        """Yields all files, split by split, each in the order of their names.

        Raises:
            SourceError: If there are none of a split that is named, or they lie elsewhere.
        """
        for split in SPLITS:
            pattern = getattr(self, split)
            if pattern is None:
                continue
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise SourceError(f"data.source.{split}: {pattern} leads out of {self.root}")
            paths = sorted(self.root.glob(pattern))
            if not paths:
                raise SourceError(f"there is no file {pattern} in {self.root}")
            yield from ((split, path) for path in paths)

    def split_of(self, key: str, split: Split) -> Split:
        """The split of an image in a file of a split."""
        if split != "train":
            return split
        val = 0 if self.val else self.val_share
        return hashed_split(key, val, 0 if self.test else self.test_share)


def hashed_split(key: str, val_share: float, test_share: float) -> Split:
    """The split of an image by a hash of its key, which does not move when others are added."""
    digest = hashlib.sha256(unicodedata.normalize("NFC", key).encode(errors="replace")).digest()
    draw = int.from_bytes(digest[:8]) / 2**64
    if draw < test_share:
        return "test"
    return "val" if draw < test_share + val_share else "train"


def captions_of(key: str, value: Any, problems: Problems) -> tuple[Caption, ...]:
    """The captions of an image: a text, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        problems.add("caption that is no text", f"{key}: {value!r:.80}")
        return ()
    if len(texts) == 1:
        return (Caption(key, texts[0]),)
    return tuple(Caption(f"{key}/{number}", text) for number, text in enumerate(texts))


def unreadable(path: Path, error: Exception) -> UnreadableError:
    """What to raise of an image in a file that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UnreadableError(f"{path} cannot be read: {reason}")
