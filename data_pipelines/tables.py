"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lays out cells in columns.

    Args:
        header: Titles of the columns; a title may have several lines.
        rows: As many cells a row. The first is left-aligned, the others are right-aligned.
    """
    lines = [title.split("\n") for title in header]
    height = max(len(title) for title in lines)
    padded = [[""] * (height - len(title)) + title for title in lines]
    titles = [list(line) for line in zip(*padded, strict=True)]
    cells = [*titles, *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    rule = "  ".join("-" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([*map(line, titles), rule, *map(line, rows)])
