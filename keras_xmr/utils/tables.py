"""Tables of text, for the terminal, Markdown and LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unicodedata import east_asian_width


@dataclass(frozen=True)
class Table:
    """A table with a title: a header, and rows of as many cells.

    Attributes:
        title: The title.
        header: The titles of its columns.
        rows: Cells of the rows.
        best: The best cell of a column, by the place of the column, where rows are compared;
            None where all are equal.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    best: Mapping[int, str | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.title}\n\n{table(self.header, self.rows)}"

    def markdown(self) -> str:
        """Returns the table in Markdown, under a heading; the best cells are bold."""
        lines = [f"| {' | '.join(cells)} |" for cells in self._printed(_markdown, "**{}**")]
        rule = " | ".join(["---", *["---:"] * (len(self.header) - 1)])
        return "\n".join([f"### {self.title}", "", lines[0], f"| {rule} |", *lines[1:]])

    def latex(self) -> str:
        """Returns the table in LaTeX, which needs no package; the best cells are bold."""
        lines = [rf"{' & '.join(cells)} \\" for cells in self._printed(_latex, r"\textbf{{{}}}")]
        begin = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        begin.append(rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}")
        end = [r"\hline", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*begin, r"\hline", lines[0], r"\hline", *lines[1:], *end])

    def _printed(self, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
        """Yields the header and the rows, with their text escaped, and the best cells in bold."""
        for row in (self.header, *self.rows):
            yield [
                bold.format(escape(cell)) if self.best.get(place) == cell else escape(cell)
                for place, cell in enumerate(row)
            ]


def _markdown(text: str) -> str:
    return re.sub(r"([|*])", r"\\\1", text.replace("\n", " "))


_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "\n": " ",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def _latex(text: str) -> str:
    """Returns text as LaTeX prints it; `**bold**` is bold, and a minus that begins a number is
    one.
    """
    escaped = "".join(_LATEX.get(character, character) for character in text)
    escaped = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


def on_one_line(text: str) -> str:
    """Replaces line breaks and control characters, which affect a terminal, with `?`."""
    return "".join(c if c.isprintable() else "?" for c in text)


def terminal_width(text: str) -> int:
    """Returns the number of cells that a text takes on a terminal.

    Wide characters, such as 犬 and most emoji, take two; accents and signs that combine take none.
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(c) in "WF")
        for c in text
    )


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
    widths = [max(terminal_width(row[i]) for row in cells) for i in range(len(header))]
    rule = "  ".join("-" * width for width in widths).rstrip()

    def line(row: Sequence[str]) -> str:
        # Width on a terminal: 犬 takes two cells, and a combining accent none.
        spaces = [" " * (w - terminal_width(cell)) for cell, w in zip(row, widths, strict=True)]
        rest = [space + cell for cell, space in zip(row[1:], spaces[1:], strict=True)]
        return "  ".join([row[0] + spaces[0], *rest]).rstrip()

    return "\n".join([*map(line, titles), rule, *map(line, body)])
