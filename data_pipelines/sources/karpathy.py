"""The split files of Karpathy and Fei-Fei (`dataset_coco.json`, `dataset_flickr30k.json`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from data_pipelines.sources.base import Problems, SourceError, Split
from data_pipelines.sources.text_files import read_bytes

_SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


@dataclass(frozen=True, slots=True)
class KarpathyImage:
    """One image of a split file.

    Attributes:
        file_name: With its folder, if the file names one (`val2014/COCO_val2014_....jpg`).
        key: See `karpathy_keys`.
        split: Its split; `restval` has already been resolved.
        sentences: Pairs of sentence id and raw caption.
    """

    file_name: str
    key: str
    split: Split
    sentences: tuple[tuple[str, str], ...]


def load_json(path: Path, holds: str) -> Any:
    """Reads a JSON file.

    Args:
        path: The file.
        holds: What it should hold, for the error message.

    Raises:
        SourceError: If the file is missing or is not JSON.
    """
    content = read_bytes(path, holds)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{path} is not valid JSON ({error}); it should hold {holds}. "
            "It may have been cut off while it was downloaded"
        ) from None


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


def karpathy_images(path: Path, restval: bool, problems: Problems) -> Iterator[KarpathyImage]:
    """Yields the images of a split file in its order.

    Args:
        path: The split file.
        restval: Whether images of the split `restval` belong to the training split, as in the
            papers, or are left out.
        problems: Where entries that cannot be used are counted.

    Raises:
        SourceError: If the file is not a split file.
    """
    content = load_json(path, "the Karpathy split")
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise SourceError(f"{path} is not a Karpathy split file: it has no list 'images'")
    images = content["images"]
    for number, (image, key) in enumerate(zip(images, karpathy_keys(images), strict=True)):
        try:
            parsed = _parse(image, key, restval)
        except (KeyError, TypeError, ValueError) as error:
            where = f"{path} images[{number}]"
            problems.add("malformed entry of the split file", f"{where}: {fault(error)}")
            continue
        if parsed is not None:
            yield parsed


def karpathy_keys(images: Sequence[Any]) -> list[str]:
    """The keys of the images of a split file: the id of the data set (`cocoid`), or the file name.

    Some files name the folder of an image and some do not, so it is no part of its key; only where
    images in several folders have one name, it is.

    Args:
        images: The entries of the list `images`; the key of a malformed one may be empty.
    """
    paths = [_path(image) for image in images]
    count = Counter(path.name for path in paths)
    names = [path.name if count[path.name] == 1 else str(path) for path in paths]
    return [_key(image, name) for image, name in zip(images, names, strict=True)]


def _key(image: Any, name: str) -> str:
    id_ = image.get("cocoid") if isinstance(image, dict) else None
    try:
        return name if id_ is None else identifier(id_)
    except TypeError:
        return ""


def _path(image: Any) -> PurePosixPath:
    """The file of an image, with its folder if that is named."""
    parts = [image.get("filepath"), image.get("filename")] if isinstance(image, dict) else []
    return PurePosixPath(*(part for part in parts if isinstance(part, str)))


def _parse(image: Any, key: str, restval: bool) -> KarpathyImage | None:
    name = image["split"]
    if name == "restval" and not restval:
        return None
    split = _SPLITS.get(string(name))
    if split is None:
        raise ValueError(f"its split is {name!r}, not {', '.join(_SPLITS)}")
    string(image["filename"])
    identifier(key)
    sentences = tuple((identifier(s["sentid"]), string(s["raw"])) for s in image["sentences"])
    return KarpathyImage(str(_path(image)), key, split, sentences)
