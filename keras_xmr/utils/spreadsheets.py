"""CSV that spreadsheets open without running its text as formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

# Characters that begin a formula in a spreadsheet; the wide ones are on Asian keyboards.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def to_csv(rows: Iterable[Sequence[object]], digits: int | None = None) -> bytes:
    """Formats rows as CSV. Text that would run as a formula has an apostrophe before it.

    Captions and names of files come from others, and a spreadsheet would execute them. Numbers
    stay numbers, and None is an empty cell.

    Args:
        rows: The cells.
        digits: Significant digits of fractions; by default all.
    """

    def plain(cell: object) -> object:
        if isinstance(cell, float | np.floating):
            return repr(float(cell)) if digits is None else f"{cell:.{digits}g}"
        return f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell

    text = io.StringIO(newline="")
    # With "\n" as the end of a row, a "\r" in a cell would be unquoted, and begin another row.
    csv.writer(text, lineterminator="\r\n").writerows([plain(c) for c in row] for row in rows)
    return text.getvalue().encode("utf-8")


def without_apostrophe(cell: str) -> str:
    """Removes the apostrophe that `to_csv` puts before text that would run as a formula."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell[1:]) else cell


def _is_formula(text: str) -> bool:
    if not text.startswith(_FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
