"""The split files of Karpathy and Fei-Fei (`dataset_coco.json`, `dataset_flickr30k.json`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from data_pipelines.sources.base import Problems, SourceError, Split


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
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist; it should hold {holds}") from None
    except IsADirectoryError:
        raise SourceError(f"{path} is a folder; a JSON file with {holds} is expected") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path} is not valid JSON ({error}); it should hold {holds}. "
            "It may have been cut off while it was downloaded"
        ) from None


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
        except (KeyError, TypeError, AttributeError) as error:
            problems.add("malformed entry of the split file", f"{path} images[{number}]: {error!r}")
            continue
        if parsed is not None:
            yield parsed


def karpathy_keys(images: Sequence[Any]) -> list[str]:
    """The keys of the images of a split file: the id of the data set (`cocoid`), or the file name.

    Some files name the folder of an image and some do not, so it is no part of its key; only where
    images in several folders have one name, it is.

    Args:
        images: The entries of the list `images`; one that is malformed has any key.
    """
    paths = [_path(image) for image in images]
    names = Counter(path.name for path in paths)
    return [
        str(image["cocoid"])
        if isinstance(image, dict) and "cocoid" in image
        else (path.name if names[path.name] == 1 else str(path))
        for image, path in zip(images, paths, strict=True)
    ]


def _path(image: Any) -> PurePosixPath:
    """The file of an image, with its folder if that is named."""
    parts = [image.get("filepath"), image.get("filename")] if isinstance(image, dict) else []
    return PurePosixPath(*(part for part in parts if isinstance(part, str)))


def _parse(image: Any, key: str, restval: bool) -> KarpathyImage | None:
    split = image["split"]
    if split == "restval":
        split = "train" if restval else None
    if split not in ("train", "val", "test"):
        return None
    if not isinstance(image["filename"], str):
        raise TypeError(f"the filename is {image['filename']!r}")
    sentences = tuple((str(s["sentid"]), str(s["raw"])) for s in image["sentences"])
    return KarpathyImage(str(_path(image)), key, split, sentences)
