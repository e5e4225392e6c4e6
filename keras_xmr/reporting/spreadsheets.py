"""CSV that people open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

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
    if isinstance(cell, str) and cell.startswith(_FORMULA) and not _is_number(cell):
        return f"'{cell}"
    return cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
