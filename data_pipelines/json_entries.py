"""Entries of the JSON files that describe data sets. Imports no source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any


def identifier(value: Any) -> str:
    """An id of a JSON file, which is a whole number or a string.

    Raises:
        TypeError: If it is something else, or empty.
    """
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise TypeError(f"an id is {value!r}")
    return str(value)


def string(value: Any) -> str:
    """A string of a JSON file.

    Raises:
        TypeError: If it is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"there is {value!r} in the place of a text")
    return value


def fault(error: Exception) -> str:
    """What is wrong with an entry of a JSON file, in words."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8, without NUL: JSON can hold half of a character."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def karpathy_keys(images: Sequence[Any]) -> list[str]:
    """The keys of the images of a split file: the id of the data set (`cocoid`), or the file name.

    Some files name the folder of an image and some do not, so it is no part of its key; only where
    images in several folders have one name, it is.

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
    """The file of an image, with its folder if that is named."""
    parts = [image.get("filepath"), image.get("filename")] if isinstance(image, dict) else []
    return PurePosixPath(*(part for part in parts if isinstance(part, str)))
