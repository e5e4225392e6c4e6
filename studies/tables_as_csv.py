"""Converts the Markdown tables on standard input to one CSV file, for docs/tables.

Rows of several tables with the same header have the title of their table, the last heading or bold
line before it, in the first column.

    python benchmarks/claims.py --scenes saved_models | python studies/tables_as_csv.py claims.csv
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_xmr.utils.files import atomic_write


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the tables on standard input to the file that is named."""
    names = sys.argv[1:] if arguments is None else arguments
    if len(names) != 1:
        raise SystemExit("usage: python studies/tables_as_csv.py FILE.csv < PAGE.md")
    atomic_write(Path(names[0]), convert(sys.stdin.read()).encode())


def convert(markdown: str) -> str:
    """Returns the rows of all tables as CSV.

    Raises:
        SystemExit: If there is no table, or tables have different headers.
    """
    title, rows, header, titles = "", [], None, set()
    lines = markdown.splitlines()
    for number, line in enumerate(lines):
        if match := re.fullmatch(r"(?:#+ (.+)|\*\*(.+)\*\*)", line.strip()):
            title = match[1] or match[2]
        if not line.startswith("|") or re.fullmatch(r"[|:\- ]+", line):
            continue
        cells = [_plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if number + 1 < len(lines) and re.fullmatch(r"\|[|:\- ]+", lines[number + 1]):
            if header not in (None, cells):
                raise SystemExit(f"tables have different headers: {header} and {cells}")
            header = cells
            titles.add(title)
        else:
            rows.append([title, *cells])
    if header is None:
        raise SystemExit("there is no table on standard input")
    first = 0 if len(titles) > 1 else 1
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows(row[first:] for row in [["table", *header], *rows])
    return buffer.getvalue()


def _plain(cell: str) -> str:
    return cell.strip().replace("**", "").replace("`", "").replace("\\|", "|")


if __name__ == "__main__":
    main()
