"""Text files of data sets: lines, CSV and JSON, with strict decoding."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from data_pipelines.photo_files import check_file, file_bytes
from data_pipelines.sources.base import (
    Entry,
    MissingFileError,
    Problems,
    SourceError,
)
from keras_xmr.utils import files
from keras_xmr.utils.files import lines_of
from keras_xmr.utils.json_entries import Repeated, is_text, join_lists, parse_json, values_of

reading = partial(files.reading, error=SourceError, missing=MissingFileError)
"""Turns errors of reading a file into errors of sources; see `keras_xmr.utils.files.reading`."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def only_text(entries: Iterable[Entry], problems: Problems) -> Iterator[Entry]:
    """Skips images and captions with names or words that are not valid text.

    Args:
        entries: The entries.
        problems: Counts skipped items.
    """
    for entry in entries:
        if not is_text(entry.key + entry.file):
            problems.add("image name that is not text", ascii(entry.key))
            continue
        kept = tuple(c for c in entry.captions if is_text(c.key + c.text))
        for caption in set(entry.captions).difference(kept):
            problems.add("caption that is not text", f"{entry.key}: {caption.text!r}")
        yield entry if len(kept) == len(entry.captions) else replace(entry, captions=kept)


def decode(content: bytes, errors: str = "strict") -> str:
    """Decodes UTF-8, with or without a byte order mark.

    Args:
        content: The bytes.
        errors: Handling of invalid bytes, as for `bytes.decode`.

    Raises:
        UnicodeDecodeError: If they are not UTF-8, or are UTF-16, which can pass for it.
    """
    if content.startswith(_UTF_16) or b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, 0, len(content), "it seems to be UTF-16")
    return content.decode("utf-8-sig", errors)


def load_json(path: Path, holds: str) -> Any:
    """Reads a JSON file.

    Args:
        path: The file.
        holds: Description of its content, for the error message.

    Raises:
        SourceError: If the file is missing or is not JSON.
    """
    with reading(path, holds):
        content = file_bytes(path)
    try:
        return join_lists(parse_json(content))
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{path} is not valid JSON ({error}); it should hold {holds}. "
            "It may have been cut off while it was downloaded"
        ) from None


def read_lines(path: Path, holds: str) -> list[str]:
    """Reads the lines of a text file.

    Args:
        path: The file.
        holds: Description of its content, for the error message.

    Raises:
        SourceError: If it is missing, cannot be read, or is not UTF-8.
    """
    with reading(path, holds):
        lines = lines_of(decode(file_bytes(path)))
    return lines


def json_rows(
    path: Path, columns: tuple[str, ...], problems: Problems
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number of the entry and the fields, by column, of every caption of a JSON file.

    A repeated key, and `caption` beside `captions`, lose no caption.

    Args:
        path: The file, UTF-8: a list of objects, an object per line (`.jsonl`), or one object that
            has a caption, several, or an object for each image.
        columns: The keys of an object: of the image, of its caption or list of captions, and more.
        problems: Counts objects without these.

    Raises:
        SourceError: If it is missing or malformed.
    """
    image, caption, *more = columns
    needed = ",".join(columns)
    lines = read_lines(path, needed)
    try:
        if path.suffix.lower() == ".jsonl":
            items = [parse_json(line) for line in lines if line.strip()]
        else:
            items = parse_json("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not valid JSON ({error})") from None
    if isinstance(items, dict) and {image, caption} <= items.keys():
        items = [items]
    if isinstance(items, dict):
        items = [
            {image: key, **(value if isinstance(value, dict) else {caption: value})}
            for key, values in items.items()
            for value in (values if isinstance(values, Repeated) else [values])
        ]
    for number, item in enumerate(items if isinstance(items, list) else [items], 1):
        item = item if isinstance(item, dict) else {}
        is_named = caption in item or f"{caption}s" in item
        texts = values_of(item, caption, f"{caption}s") if is_named else [None]
        fields = {k: str(v) for k, v in item.items() if isinstance(v, str) or type(v) is int}
        is_whole = {image, *more} <= fields.keys() and all(isinstance(t, str) for t in texts)
        if not is_whole:
            problems.add("malformed JSON entry", f"{path}: entry {number} needs {needed}")
            continue
        for text in texts:
            yield number, {**fields, caption: str(text)}


def csv_rows(
    path: Path, columns: tuple[str, ...], problems: Problems, advice: str = ""
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line number and the fields, by column, of every complete row of a CSV file.

    Args:
        path: The file, UTF-8.
        columns: Required columns.
        problems: Counts incomplete rows.
        advice: End of the message about a missing column.

    Raises:
        SourceError: If it is missing, malformed, or without one of the columns.
    """
    usual = ",".join(columns)
    wanted = f". Write a first line such as {usual!r}{advice}"
    with reading(path, usual):
        for line, fields in files.read_csv(check_file(path), columns, wanted, SourceError):
            if isinstance(fields, str):
                problems.add("malformed CSV row", fields)
            else:
                yield line, fields
