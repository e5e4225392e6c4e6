"""Shared parts of Arrow and Parquet sources: `pyarrow`, columns, and their values."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from data_pipelines.sources.base import (
    EncodedImage,
    Entry,
    Problems,
    SourceError,
    Split,
    UnreadableError,
    inside,
)
from data_pipelines.sources.sharded import ShardedSource, parse_captions, unreadable


class TableSource(ShardedSource):
    """Base class of sources whose rows are an image and its captions."""

    FORMAT: ClassVar[str]

    image_column: str
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    caption_column: str = "caption"
    """The column with the caption, or with the list of captions."""

    key_column: str | None = None
    """The column with the key of the image, by which judgements and audit labels identify it.
    Without one (null), its file and row are its key."""

    @abc.abstractmethod
    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file, with the columns of `columns`."""

    @abc.abstractmethod
    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row of a file in the column of images."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images file by file, row by row."""
        for split, path in self.files():
            name = str(path.relative_to(self.root))
            try:
                yield from self.rows(self.batches(path), split, name, problems)
            except (OSError, ValueError) as error:
                problems.add(f"damaged {self.FORMAT} file", f"{path}: {error}")

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the image of a row. Reading in order is fastest."""
        path = inside(self.root, entry.file)
        try:
            value = self.value(path, entry.position)
        except (OSError, ValueError, LookupError) as error:
            raise unreadable(path, error) from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise UnreadableError(f"row {entry.position} of {entry.file} holds no image")
        return EncodedImage(data)

    def rows(
        self, batches: Iterable[Any], split: Split, file: str, problems: Problems
    ) -> Iterator[Entry]:
        """Yields the images of a file.

        Args:
            batches: Batches of its rows.
            split: The split of the file.
            file: The file, under `root`.
            problems: Counts skipped captions.
        """
        row = 0
        for batch in batches:
            captions = batch.column(self.caption_column).to_pylist()
            keys: Sequence[Any] = [None] * len(captions)
            if self.key_column is not None:
                keys = batch.column(self.key_column).to_pylist()
            for key, caption in zip(keys, captions, strict=True):
                name = f"{file}/{row:09d}" if key is None else str(key)
                parsed = parse_captions(name, [] if caption is None else caption, problems)
                yield Entry(name, self.split_of(name, split), parsed, file=file, position=row)
                row += 1

    def columns(self, schema: Any, path: Path) -> list[str]:
        """Returns the columns of the entries.

        Args:
            schema: The Arrow schema of a file.
            path: The file, for the message.

        Raises:
            SourceError: If one does not exist, or the column of images has another type.
        """
        names = schema.names
        read = [self.caption_column, *filter(None, [self.key_column])]
        for field, column in (
            ("image", self.image_column),
            ("caption", read[0]),
            ("key", read[-1]),
        ):
            if column not in names:
                raise SourceError(
                    f"{path} has no column {column!r}, but {', '.join(map(repr, names))}; "
                    f"name one with data.source.{field}_column"
                )
        kind = str(schema.field(self.image_column).type)
        if "binary" not in kind and "extension" not in kind:
            raise SourceError(
                f"the column {self.image_column!r} of {path} holds {kind}, not the bytes of "
                f"images; its columns are {', '.join(map(repr, names))}, and "
                "data.source.image_column names the one with images"
            )
        return read


def pyarrow(module: str) -> ModuleType:
    """Imports a module of pyarrow.

    Raises:
        SourceError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SourceError(
            "tables need pyarrow; install it: pip install 'keras-xmr[parquet]'"
        ) from None
