"""Tables of text, for the terminal, Markdown, LaTeX and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Table:
    """A table with a title: a header, and rows of as many cells.

    Attributes:
        title: Its title.
        header: The titles of its columns.
        rows: Its cells.
        best: The best cell of a column, by the place of the column, where rows are compared;
            None where all are equal.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    best: Mapping[int, str | None] = field(default_factory=dict)

    def __str__(self) -> str:
        from keras_xmr.utils.tables import table  # Metrics import without rich.

        return f"{self.title}\n\n{table(self.header, self.rows)}"

    def markdown(self) -> str:
        """The table in Markdown, under a heading; the best cells are bold."""
        lines = [f"| {' | '.join(cells)} |" for cells in self._printed(_markdown, "**{}**")]
        rule = " | ".join(["---", *["---:"] * (len(self.header) - 1)])
        return "\n".join([f"### {self.title}", "", lines[0], f"| {rule} |", *lines[1:]])

    def latex(self) -> str:
        """The table in LaTeX, which needs no package; the best cells are bold."""
        lines = [rf"{' & '.join(cells)} \\" for cells in self._printed(_latex, r"\textbf{{{}}}")]
        begin = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        begin.append(rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}")
        end = [r"\hline", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*begin, r"\hline", lines[0], r"\hline", *lines[1:], *end])

    def _printed(self, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
        """The header and the rows, with their text escaped, and the best cells in bold."""
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
    """Text as LaTeX prints it; `**bold**` is bold, and a minus that begins a number is one."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    escaped = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", escaped)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


# Characters that begin a formula in a spreadsheet; the wide ones are on Asian keyboards.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def to_csv(rows: Iterable[Sequence[object]], digits: int | None = None) -> bytes:
    """Rows as CSV. Text that would run as a formula has an apostrophe before it.

    Captions and names of files come from others, and a spreadsheet would execute them. Numbers
    stay numbers, and None is an empty cell.

    Args:
        rows: The cells.
        digits: Significant digits of fractions; by default all.
    """

    def plain(cell: object) -> object:
        if isinstance(cell, float | np.floating) and digits is not None:
            return f"{cell:.{digits}g}"
        if isinstance(cell, str) and cell.startswith(_FORMULA):
            try:
                float(cell)
            except ValueError:
                return f"'{cell}"
        return cell

    text = io.StringIO(newline="")
    # With "\n" as the end of a row, a "\r" in a cell would be unquoted, and begin another row.
    csv.writer(text, lineterminator="\r\n").writerows([plain(c) for c in row] for row in rows)
    return text.getvalue().encode("utf-8")
