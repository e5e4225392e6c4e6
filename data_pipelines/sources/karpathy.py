"""The split files of Karpathy and Fei-Fei (`dataset_coco.json`, `dataset_flickr30k.json`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipelines.sources.base import Problems, SourceError, Split


@dataclass(frozen=True, slots=True)
class KarpathyImage:
    """One image of a split file.

    Attributes:
        file_name: With its folder, if the file names one (`val2014/COCO_val2014_....jpg`).
        key: The id that the data set gives it (`cocoid`), or its file name.
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
    for number, image in enumerate(content["images"]):
        try:
            parsed = _parse(image, restval)
        except (KeyError, TypeError, AttributeError) as error:
            problems.add("malformed entry of the split file", f"{path} images[{number}]: {error!r}")
            continue
        if parsed is not None:
            yield parsed


def _parse(image: Any, restval: bool) -> KarpathyImage | None:
    split = image["split"]
    if split == "restval":
        split = "train" if restval else None
    if split not in ("train", "val", "test"):
        return None
    file_name = image["filename"]
    if folder := image.get("filepath"):
        file_name = f"{folder}/{file_name}"
    sentences = tuple((str(s["sentid"]), str(s["raw"])) for s in image["sentences"])
    return KarpathyImage(file_name, str(image.get("cocoid", file_name)), split, sentences)
