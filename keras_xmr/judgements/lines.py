"""The lines of text files of judgements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from keras_xmr.judgements.errors import JudgementsError


def first_line(path: Path) -> str:
    """The first line of a file; empty if it cannot be read, which is told when it is read."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return file.readline()
    except (OSError, ValueError):
        return ""


def read_lines(path: Path, expected: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of every line that is not blank.

    Args:
        path: The file, UTF-8.
        expected: What it should hold, for messages.

    Raises:
        JudgementsError: If it cannot be read.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise JudgementsError(f"{path} does not exist; expected {expected}") from None
    except OSError as error:
        raise JudgementsError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise JudgementsError(f"{path} is not UTF-8 ({error})") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line
