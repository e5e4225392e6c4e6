"""Entries of the JSON files of data sets. Imports no source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any


def identifier(value: Any) -> str:
    """Converts an id in a JSON file, an integer or a string, to a string.

    Raises:
        TypeError: If it is something else, or empty.
    """
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise TypeError(f"invalid id {value!r}")
    return str(value)


def string(value: Any) -> str:
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
    """Whether a string is valid UTF-8 without NUL: JSON can hold unpaired surrogates."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def karpathy_keys(images: Sequence[Any]) -> list[str]:
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


def _key(image: Any, name: str) -> str:
    id_ = image.get("cocoid") if isinstance(image, dict) else None
    try:
        return name if id_ is None else identifier(id_)
    except TypeError:
        return ""


def karpathy_path(image: Any) -> PurePosixPath:
    """Returns the file of an image, with its folder if the entry names it."""
    parts = [image.get("filepath"), image.get("filename")] if isinstance(image, dict) else []
    return PurePosixPath(*(part for part in parts if isinstance(part, str)))
