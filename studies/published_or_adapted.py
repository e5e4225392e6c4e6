"""Adds the column "published or adapted" to tables of results, by the configs of their rows.

A config says in `fidelity` whether its method is trained as published, or what is adapted. Tables
in Markdown and CSV whose rows are configs have that in their second column; in tables that begin
with "row", a row is all configs that its other cells name. What is up to date stays as it is.

    python studies/published_or_adapted.py docs/results/*.md docs/tables/*.csv
"""

from __future__ import annotations

import csv
import functools
import io
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from keras_xmr.config.fidelity import fidelity_text
from keras_xmr.config.loader import packaged_ablations, packaged_configs
from keras_xmr.config.yaml_file import read_yaml
from keras_xmr.utils.files import atomic_write

TITLE = "published or adapted"
_PREFIXES = "", "csv_pretrained_"
_RULE = re.compile(r"\|[|:\- ]+\|")

Row = list[str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrites the files that are named."""
    for name in sys.argv[1:] if arguments is None else arguments:
        path = Path(name)
        text = path.read_text("utf-8")
        new = with_column(text, path.suffix)
        if new != text:
            atomic_write(path, new.encode())


def with_column(text: str, suffix: str) -> str:
    """A page (`.md`) or a table (`.csv`) with the column in its tables of configs."""
    return _csv(text) if suffix == ".csv" else _markdown(text)


@functools.cache
def fidelity_of(name: str) -> str | None:
    """What the config of a name says, as `pcmepp` or `csv_pretrained_pcmepp`; None without one."""
    configs = _configs()
    found = next((prefix + name for prefix in _PREFIXES if prefix + name in configs), None)
    return fidelity_text(read_yaml(configs[found]).data["fidelity"]) if found else None


@functools.cache
def _configs() -> dict[str, Path]:
    return packaged_configs() | packaged_ablations()


def _csv(text: str) -> str:
    buffer = io.StringIO()
    rows = _extended(list(csv.reader(io.StringIO(text))), [TITLE])
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _markdown(text: str) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _RULE.fullmatch(line.strip()):
            first, last = number - 1, number
            while last < len(lines) and lines[last].strip().startswith("|"):
                last += 1
            rows = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in lines[first:last]]
            rows = _extended(rows, [f" {TITLE} ", " --- "], " {} ")
            indent = line[: line.index("|")]
            lines[first:last] = [f"{indent}|{'|'.join(row)}|" for row in rows]
    return "\n".join(lines)


def _extended(rows: list[Row], head: Sequence[str], form: str = "{}") -> list[Row]:
    """Rows with the column after that of the names, in place of an earlier one.

    Args:
        rows: All rows, with the title and what is below it.
        head: The first cells of the column.
        form: The form of its other cells.
    """
    titles = [title.strip() for title in rows[0]]
    if TITLE in titles:
        rows = [[c for n, c in enumerate(row) if n != titles.index(TITLE)] for row in rows]
    place = titles.index("method") if "method" in titles else 0
    if titles[0] == "row":
        texts = [_of_several(re.findall(r"`(\w+)`", " ".join(row[1:]))) for row in rows]
    else:
        texts = [fidelity_of(row[place].strip(" *`")) or "" for row in rows]
    if not any(texts):
        return rows
    cells = [*head, *map(form.format, texts[len(head) :])]
    return [
        [*row[: place + 1], cell, *row[place + 1 :]] for row, cell in zip(rows, cells, strict=True)
    ]


def _of_several(names: Sequence[str]) -> str:
    """What all configs say, or what some do, with their names."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if text := fidelity_of(name):
            by_text[text].append(f"`{name}`")
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{', '.join(own)}: {text}" for text, own in by_text.items())


if __name__ == "__main__":
    main()
