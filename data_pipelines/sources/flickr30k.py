"""Flickr30K, from its folder of images, and the Karpathy split file that COCO has, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from data_pipelines.documentation import page
from data_pipelines.json_entries import (
    fault,
    identifier,
    karpathy_keys,
    karpathy_path,
    string,
)
from data_pipelines.sources.base import (
    Caption,
    EncodedImage,
    Entry,
    FolderSource,
    Problems,
    SourceError,
    Split,
    read_image_file,
)
from data_pipelines.sources.text_files import read_bytes

_SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


def load_json(path: Path, holds: str) -> Any:
    """Reads a JSON file.

    Args:
        path: The file.
        holds: Description of its content, for the error message.

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


def karpathy_entries(path: Path, restval: bool, problems: Problems) -> Iterator[Entry]:
    """Yields the images of a split file in its order, with the keys of `karpathy_keys`.

    Args:
        path: The split file.
        restval: Whether images of the split `restval` belong to the training split, as in the
            papers, or are skipped.
        problems: Counts skipped entries.

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


def _parse(image: Any, key: str, restval: bool) -> Entry | None:
    name = image["split"]
    if name == "restval" and not restval:
        return None
    split = _SPLITS.get(string(name))
    if split is None:
        raise ValueError(f"its split is {name!r}, not {', '.join(_SPLITS)}")
    string(image["filename"])
    identifier(key)
    captions = tuple(Caption(identifier(s["sentid"]), string(s["raw"])) for s in image["sentences"])
    return Entry(key, split, captions, file=str(karpathy_path(image)))


class Flickr30kSource(FolderSource):
    """Flickr30K (Young et al. 2014) with the splits of Karpathy and Fei-Fei (2015).

    Flickr8K in the same format (`dataset_flickr8k.json`) is read as well.
    """

    origin: ClassVar[str] = (
        f"{page('results/reproduce.md')} says where to get Flickr30K, and where to put it: "
        "https://shannon.cs.illinois.edu/DenotationGraph/"
    )

    name: Literal["flickr30k"] = "flickr30k"

    images: str = "flickr30k-images"
    """Folder of the photos, under `root`."""

    split_file: str = "dataset_flickr30k.json"
    """The Karpathy split file with the captions, under `root`."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of the split file."""
        return karpathy_entries(self.root / self.split_file, False, problems)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo."""
        return read_image_file(self.root / self.images, entry.file)
