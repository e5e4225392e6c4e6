"""Parquet files with a column of images, as from img2dataset or the hub of Hugging Face."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from data_pipelines.sources.arrow import TableSource, pyarrow
from data_pipelines.sources.base import check_file

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
