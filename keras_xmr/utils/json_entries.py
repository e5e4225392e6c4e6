"""Entries of the JSON files of data sets. Imports no source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any


class Repeated(list[Any]):
    """The values of a key that an object of a JSON file has more than once, in order."""


def parse_json(content: str | bytes) -> Any:
    """Parses JSON; the value of a repeated key of an object is `Repeated`, so that none is lost.

    Raises:
        ValueError: If it is not JSON.
        RecursionError: If it is nested too deeply.
    """
    return json.loads(content, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(entry := dict(pairs)) == len(pairs):
        return entry
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: v[0] if len(v) == 1 else Repeated(v) for key, v in values.items()}


def join_lists(content: object) -> Any:
    """Joins the lists of repeated keys of an object of a JSON file; other values stay."""
    if not isinstance(content, dict):
        return content
    return {
        key: [item for one in value for item in one]
        if isinstance(value, Repeated) and all(isinstance(one, list) for one in value)
        else value
        for key, value in content.items()
    }


def values_of(entry: dict[str, Any], *keys: str) -> list[Any]:
    """Returns all values of some keys of an object, also repeated ones and those in lists."""
    values = [entry[key] for key in keys if key in entry]
    single = [v for value in values for v in (value if isinstance(value, Repeated) else [value])]
    return [v for value in single for v in (value if isinstance(value, list) else [value])]


def identifier(value: object) -> str:
    """Converts an id in a JSON file, an integer or a string, to a string.

    Raises:
        TypeError: If it is something else, or empty.
    """
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise TypeError(f"invalid id {value!r}")
    return str(value)


def string(value: object) -> str:
    """Checks that a value in a JSON file is a string.

    Raises:
        TypeError: If it is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def fault(error: Exception) -> str:
    """Describes an error in an entry of a JSON file."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def is_text(text: str) -> bool:
    """Returns whether a string is valid UTF-8 without NUL: JSON can hold unpaired surrogates."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def karpathy_keys(images: Sequence[object]) -> list[str]:
    """Returns the keys of the images of a split file: the id (`cocoid`), or the file name.

    Some files name the folder of an image and others do not, so it is not a part of the key unless
    images in several folders have the same name.

    Args:
        images: The entries of the list `images`; the key of a malformed one may be empty.
    """
    paths = [karpathy_path(image) for image in images]
    count = Counter(path.name for path in paths)
    names = [path.name if count[path.name] == 1 else str(path) for path in paths]
    return [_key(image, name) for image, name in zip(images, names, strict=True)]


def _key(image: object, name: str) -> str:
    id_ = image.get("cocoid") if isinstance(image, dict) else None
    try:
        return name if id_ is None else identifier(id_)
    except TypeError:
        return ""


def karpathy_path(image: object) -> PurePosixPath:
    """Returns the file of an image, with its folder if the entry names it."""
    names = [image.get("filepath"), image.get("filename")] if isinstance(image, dict) else []
    return PurePosixPath(*(one for one in names if isinstance(one, str)))


def has_words(text: str) -> bool:
    """Returns whether a text has a letter or a digit."""
    return any(character.isalnum() for character in text)
