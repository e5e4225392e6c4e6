"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len


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
