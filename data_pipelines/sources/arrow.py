"""Parquet files, and data sets of the library `datasets`, with a column of images."""

from __future__ import annotations

import abc
import importlib
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from data_pipelines.sources.base import (
    EncodedImage,
    Entry,
    Problems,
    SourceError,
    UnreadableError,
    check_file,
    inside,
)
from data_pipelines.sources.sharded import ShardedSource, parse_captions, unreadable


class TableSource(ShardedSource):
    """Base class of sources of tables with an image and its captions per row."""

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
            file, row = str(path.relative_to(self.root)), 0
            try:
                for batch in self.batches(path):
                    captions = batch.column(self.caption_column).to_pylist()
                    keys: Sequence[Any] = [None] * len(captions)
                    if self.key_column is not None:
                        keys = batch.column(self.key_column).to_pylist()
                    for key, caption in zip(keys, captions, strict=True):
                        name = f"{file}/{row:09d}" if key is None else str(key)
                        texts = parse_captions(name, [] if caption is None else caption, problems)
                        yield Entry(name, self.split_of(name, split), texts, (), file, row)
                        row += 1
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

    def columns(self, schema: Any, path: Path) -> list[str]:
        """Returns the columns of the entries.

        Args:
            schema: The Arrow schema of a file.
            path: The file, for the message.

        Raises:
            SourceError: If one does not exist, or the column of images has another type.
        """
        names = schema.names
        for option in ("image_column", "caption_column", "key_column"):
            column = getattr(self, option)
            if column is not None and column not in names:
                raise SourceError(
                    f"{path} has no column {column!r}, but {', '.join(map(repr, names))}; "
                    f"name one with data.source.{option}"
                )
        kind = str(schema.field(self.image_column).type)
        if "binary" not in kind and "extension" not in kind:
            raise SourceError(
                f"the column {self.image_column!r} of {path} holds {kind}, not the bytes of "
                f"images; its columns are {', '.join(map(repr, names))}, and "
                "data.source.image_column names the one with images"
            )
        return [self.caption_column, *filter(None, [self.key_column])]


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


_ROWS = 64
"""Number of images in memory per thread."""


class ParquetSource(TableSource):
    """Parquet files, such as img2dataset writes with `output_format: parquet`.

    Its columns are `key`, `caption` and `jpg`; those of the hub of Hugging Face are often `image`
    and `caption`.
    """

    FORMAT = "Parquet"

    name: Literal["parquet"] = "parquet"

    train: str = "*.parquet"
    """Pattern of the training files, under `root`."""

    image_column: str = "jpg"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file."""
        with pyarrow("pyarrow.parquet").ParquetFile(check_file(path)) as file:
            yield from file.iter_batches(columns=self.columns(file.schema_arrow, path))

    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        return _cursor(path, self.image_column).value(row)


class _Cursor:
    """Values of a column of a file; access in order is fastest."""

    def __init__(self, path: Path, column: str) -> None:
        self.location = path, column
        self._file = pyarrow("pyarrow.parquet").ParquetFile(path)
        metadata = self._file.metadata
        counts = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        self._starts = list(accumulate(counts, initial=0))
        self._group = -1
        self._first = 0
        self._batch: Any = ()
        self._rest: Iterator[Any] = iter(())

    def value(self, row: int) -> Any:
        """Returns the value of a row."""
        group = bisect_right(self._starts, row) - 1
        if group != self._group or row < self._first:
            self._group, self._first, self._batch = group, self._starts[group], ()
            columns = [self.location[1]]
            self._rest = self._file.iter_batches(_ROWS, row_groups=[group], columns=columns)
        for batch in self._rest if row >= self._first + len(self._batch) else ():
            self._first += len(self._batch)
            self._batch = batch.column(0)
            if row < self._first + len(self._batch):
                break
        return self._batch[row - self._first].as_py()


_PER_THREAD = threading.local()


def _cursor(path: Path, column: str) -> _Cursor:
    """Returns the cursor of this thread, which keeps its last file open."""
    cursor: _Cursor | None = getattr(_PER_THREAD, "cursor", None)
    if cursor is None or cursor.location != (path, column):
        cursor = _PER_THREAD.cursor = _Cursor(path, column)
    return cursor


class HuggingFaceSource(TableSource):
    """Folder saved by `datasets`: one folder of Arrow files per split.

    The files are memory-mapped; `datasets` itself is not needed. They must contain the images
    (`dataset.cast_column("image", Image())` before `save_to_disk` embeds them).
    """

    FORMAT = "Arrow"

    name: Literal["huggingface"] = "huggingface"

    train: str = "train/*.arrow"
    """Pattern of the training files, under `root`; `*.arrow` for data sets without splits."""

    image_column: str = "image"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file."""
        table = _table(path)
        yield from table.select(self.columns(table.schema, path)).to_batches()

    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        return _table(path)[self.image_column][row].as_py()


@lru_cache(maxsize=64)
def _table(path: Path) -> Any:
    """Memory-maps a file."""
    arrow = pyarrow("pyarrow")
    return pyarrow("pyarrow.ipc").open_stream(arrow.memory_map(str(path))).read_all()
