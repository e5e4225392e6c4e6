"""Tables in CSV files and on the terminal."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len

from data_pipelines.errors import UserError


def read_csv(
    path: Path, columns: Sequence[str], wanted: str, error: type[UserError]
) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Yields the line number and the fields, by column, of every row that is not blank.

    Args:
        path: The file, UTF-8.
        columns: Required columns.
        wanted: End of the message about a missing column.
        error: Class of the errors.

    Yields:
        For a row with too few fields, or too many, a message in place of the fields.

    Raises:
        UserError: Of the class `error`, if a column is missing or there twice, or if the file is
            not CSV.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None) or []
            if missing := [column for column in columns if column not in header]:
                first = ",".join(header)
                raise error(
                    f"{path} has no column {missing[0]!r}: its first line is {first!r}{wanted}"
                )
            if twice := [name for name in header if name and header.count(name) > 1]:
                raise error(f"{path} has two columns {twice[0]!r}; rename or remove one of them")
            for row in filter(None, reader):
                if len(row) == len(header):
                    yield reader.line_num, dict(zip(header, row, strict=True))
                else:
                    message = f"{path}:{reader.line_num}: {len(row)} fields, not {len(header)}"
                    yield reader.line_num, message
        except csv.Error as fault:
            raise error(
                f"{path}:{reader.line_num}: not valid CSV ({fault}). A caption that holds a comma "
                "or a quote must be in double quotes, with quotes inside it doubled"
            ) from None


def on_one_line(text: str) -> str:
    """Replaces line breaks and control characters, which affect a terminal, with `?`."""
    return "".join(c if c.isprintable() else "?" for c in text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats cells in columns.

    Args:
        header: Titles of the columns; a title may have several lines.
        rows: Cells of the rows. The first is left-aligned, the others are right-aligned. Control
            characters, which names of files may hold, become `?`.
    """
    lines = [title.split("\n") for title in header]
    height = max(len(title) for title in lines)
    padded = [[""] * (height - len(title)) + title for title in lines]
    titles = [list(line) for line in zip(*padded, strict=True)]
    body = [[on_one_line(cell) for cell in row] for row in rows]
    cells = [*titles, *body]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(header))]
    rule = "  ".join("-" * width for width in widths).rstrip()

    def line(row: Sequence[str]) -> str:
        # Width on a terminal: 犬 takes two cells, and a combining accent none.
        spaces = [" " * (w - cell_len(cell)) for cell, w in zip(row, widths, strict=True)]
        rest = [space + cell for cell, space in zip(row[1:], spaces[1:], strict=True)]
        return "  ".join([row[0] + spaces[0], *rest]).rstrip()

    return "\n".join([*map(line, titles), rule, *map(line, body)])
