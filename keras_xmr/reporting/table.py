"""Tables of text, for the terminal, Markdown, LaTeX and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A table with a title: a header, and rows of as many cells.

    Attributes:
        title: Its title.
        header: The titles of its columns.
        rows: Its cells.
        best: The best cell of a column, by the place of the column, where rows are compared.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    best: Mapping[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        from data_pipelines.tables import table  # Metrics import without rich.

        return f"{self.title}\n\n{table(self.header, self.rows)}"

    def markdown(self) -> str:
        """The table in Markdown, under a heading; the best cells are bold."""

        def row(cells: Sequence[str]) -> str:
            shown = [re.sub(r"([|*])", r"\\\1", cell.replace("\n", " ")) for cell in cells]
            bold = [f"**{s}**" if self._is_best(n, cells[n]) else s for n, s in enumerate(shown)]
            return f"| {' | '.join(bold)} |"

        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [f"### {self.title}", "", row(self.header), f"| {' | '.join(rule)} |"]
        return "\n".join([*lines, *map(row, self.rows)])

    def latex(self) -> str:
        """The table in LaTeX, which needs no package; the best cells are bold."""

        def row(cells: Sequence[str]) -> str:
            shown = [_latex(cell) for cell in cells]
            bold = [
                rf"\textbf{{{s}}}" if self._is_best(n, cells[n]) else s for n, s in enumerate(shown)
            ]
            return rf"{' & '.join(bold)} \\"

        columns = "l" + "r" * (len(self.header) - 1)
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\hline", row(self.header), r"\hline"]
        ends = [r"\hline", r"\end{tabular}", r"\end{table}"]
        return "\n".join([*lines, *map(row, self.rows), *ends])

    def _is_best(self, place: int, cell: str) -> bool:
        return self.best.get(place) == cell


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


def to_csv(rows: Iterable[Sequence[object]]) -> bytes:
    """Rows as CSV. Text that would run as a formula has an apostrophe before it.

    Captions and names of files come from others, and a spreadsheet would execute them. Numbers
    stay numbers.
    """
    text = io.StringIO(newline="")
    # With "\n" as the end of a row, a "\r" in a cell would be unquoted, and begin another row.
    csv.writer(text, lineterminator="\r\n").writerows([_plain(c) for c in row] for row in rows)
    return text.getvalue().encode("utf-8")


def _plain(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell
