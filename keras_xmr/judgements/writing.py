"""Writes CSV files of judgements."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from data_pipelines.files import atomic_write


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes a CSV file that `files.read_rows` reads as it was, whatever is in the fields.

    Raises:
        OSError: If the file cannot be written. It names the file.
    """
    buffer = io.StringIO(newline="")
    # With "\n" as the end of a row, a "\r" in a field would be written without quotes.
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    atomic_write(path, buffer.getvalue().encode("utf-8"))
