"""Reads and writes text files of judgements; errors are sentences that name file and line."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from keras_xmr.utils import files
from keras_xmr.utils.errors import UserError

_Pair = TypeVar("_Pair", bound=tuple[object, object])


class JudgementsError(UserError):
    """Judgements cannot be read; the message names the file, the line and the remedy."""


reading = partial(files.reading, error=JudgementsError)
"""Turns errors of reading a file into errors of judgements; see `utils.files.reading`."""


def first_line(path: Path) -> str:
    """Returns the first line of a file; empty if it cannot be read, which is an error when it
    is read.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.readline()
    except (OSError, ValueError):
        return ""


def read_lines(path: Path, expected: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of every line that is not blank.

    Args:
        path: The file, UTF-8.
        expected: The expected content, for messages.

    Raises:
        JudgementsError: If it cannot be read.
    """
    with reading(path, expected):
        lines = path.read_text("utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line


def read_rows(
    path: Path,
    needed: Sequence[str] = ("image", "caption"),
    usual: str = "image,caption,grade",
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line and the fields, by column, of every row of a CSV file.

    Args:
        path: The file.
        needed: The required columns.
        usual: A valid first line, for messages.

    Raises:
        JudgementsError: If a column is missing, or a row is malformed.
    """
    with reading(path, f"CSV with {usual}"):
        wanted = f", and should be {usual!r}"
        for line, fields in files.read_csv(path, needed, wanted, JudgementsError):
            if isinstance(fields, str):
                raise JudgementsError(fields)
            yield line, fields


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes a CSV file that `files.read_rows` reads as it was, whatever is in the fields.

    Raises:
        OSError: If the file cannot be written. It names the file.
    """
    buffer = io.StringIO(newline="")
    # With "\n" as the end of a row, a "\r" in a field would be written without quotes.
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    files.atomic_write(path, buffer.getvalue().encode("utf-8"))


def add_grade(
    grades: dict[_Pair, float], pair: _Pair, grade: float, where: str, names: tuple[str, str]
) -> None:
    """Adds the grade of a pair, which may be there already.

    Args:
        grades: The grades so far.
        pair: The pair.
        grade: The grade.
        where: File and line, for messages.
        names: The names of its image and its caption, likewise.

    Raises:
        JudgementsError: If the pair has another grade.
    """
    if grades.setdefault(pair, grade) != grade:
        raise JudgementsError(
            f"{where}: image {names[0]!r} and caption {names[1]!r} are judged "
            f"{grades[pair]:g} above and {grade:g} here; keep one of the two lines"
        )


class CaptionNames:
    """Finds captions by their id, or by their text, which several may share.

    Args:
        captions: Ids and texts.
    """

    def __init__(self, captions: Sequence[tuple[str, str]]) -> None:
        self._by_id = {id_: number for number, (id_, _) in enumerate(captions)}
        self._by_text: dict[str, list[int]] = {}
        for number, (_, text) in enumerate(captions):
            self._by_text.setdefault(one_line(text), []).append(number)

    def numbers(self, name: str) -> list[int]:
        """Returns the captions of a name; empty for an unknown one. Ids take precedence
        over texts.
        """
        id_ = known_name(name, self._by_id)
        if id_ in self._by_id:
            return [self._by_id[id_]]
        return self._by_text.get(one_line(name), [])

    def __contains__(self, name: str) -> bool:
        return bool(self.numbers(name))


def known_name(name: str, known: Container[str]) -> str:
    """Returns a name as in the file if it is known, and otherwise without blanks around it."""
    return name if name in known else name.strip()


def one_line(text: str) -> str:
    """Returns a text in one line, without invisible characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
