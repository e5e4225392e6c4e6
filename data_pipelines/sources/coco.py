"""COCO Captions, from the annotation files of 2014 and the Karpathy split file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from data_pipelines.documentation import page
from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    FolderSource,
    MissingFileError,
    Problems,
    SourceError,
    Split,
    UnreadableError,
    inside,
    read_image_file,
)
from data_pipelines.sources.flickr30k import (
    fault,
    identifier,
    karpathy_entries,
    load_json,
    string,
)

_T = TypeVar("_T")

_INSTANCES = "instance annotations, for labels (data.source.instances=[] does without)"


@dataclass(slots=True)
class _Annotated:
    """Annotations of one image."""

    file_name: str
    split: Split
    captions: list[Caption] = field(default_factory=list)
    labels: set[int] = field(default_factory=set)


class CocoSource(FolderSource):
    """COCO Captions (Chen et al. 2015) with the splits of Karpathy and Fei-Fei (2015).

    Labels are the object categories of the instance annotations, numbered from 0 in the order
    of their COCO ids: 80 in COCO itself.
    """

    label_kind: ClassVar[Literal["none", "class", "set"]] = "set"
    origin: ClassVar[str] = (
        f"{page('results/reproduce.md')} says where to get COCO Captions, and where to put them: "
        "https://cocodataset.org/#download"
    )

    name: Literal["coco"] = "coco"

    images: tuple[str, ...] = ("train2014", "val2014")
    """Folders of the photos, under `root`. Each photo is searched in all of them."""

    captions: tuple[str, ...] = (
        "annotations/captions_train2014.json",
        "annotations/captions_val2014.json",
    )
    """Caption annotations of the training and of the validation photos, under `root`."""

    instances: tuple[str, ...] = (
        "annotations/instances_train2014.json",
        "annotations/instances_val2014.json",
    )
    """Instance annotations, for the labels; an empty list means no labels."""

    split_file: str | None = "dataset_coco.json"
    """The Karpathy split file, under `root`. Without one (null), the first caption file is the
    training split and the second the validation split, and there is no test split."""

    restval: bool = True
    """Whether the photos that Karpathy's split calls `restval` belong to the training split, as
    in the papers."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of the split file (or of the caption files)."""
        annotated = self._read_captions(problems)
        self._read_labels(annotated, problems)
        for key, split in self._order(annotated, problems):
            image = annotated[key]
            labels = tuple(sorted(image.labels))
            yield Entry(key, split, tuple(image.captions), labels, image.file_name)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo from the first folder that has it."""
        for folder in self.images:
            if os.path.exists(inside(self.root / folder, entry.file)):
                return read_image_file(self.root / folder, entry.file)
        folders = ", ".join(self.images)
        raise UnreadableError(f"{entry.file} is in none of {folders} under {self.root}")

    def _read_captions(self, problems: Problems) -> dict[str, _Annotated]:
        annotated: dict[str, _Annotated] = {}
        for name, split in zip(self.captions, SPLITS, strict=False):
            path = self.root / name
            content = _annotation_file(path, "caption annotations")
            for key, file_name in _parsed(content, "images", _image, path, problems):
                if key in annotated:
                    problems.add("duplicate image id", f"{key} in {path}")
                    continue
                annotated[key] = _Annotated(file_name, split)
            for key, caption in _parsed(content, "annotations", _caption, path, problems):
                if owner := annotated.get(key):
                    owner.captions.append(caption)
                else:
                    example = f"{caption.key} of image {key} in {path}"
                    problems.add("caption of an unknown image", example)
        return annotated

    def _read_labels(self, annotated: dict[str, _Annotated], problems: Problems) -> None:
        for name in self.instances:
            path = self.root / name
            content = _annotation_file(path, _INSTANCES, ("annotations", "categories"))
            ids = sorted(_parsed(content, "categories", lambda c: _whole(c["id"]), path, problems))
            number = {category: position for position, category in enumerate(ids)}
            for key, category in _parsed(content, "annotations", _instance, path, problems):
                if category not in number:
                    problems.add("instance of an unknown category", f"{category} in {path}")
                elif owner := annotated.get(key):
                    owner.labels.add(number[category])

    def _order(
        self, annotated: dict[str, _Annotated], problems: Problems
    ) -> Iterator[tuple[str, Split]]:
        if self.split_file is None:
            yield from ((key, image.split) for key, image in annotated.items())
            return
        path = self.root / self.split_file
        if not path.exists():
            raise MissingFileError(
                f"{path} does not exist; it should hold the Karpathy split "
                "(data.source.split_file=null takes the splits of COCO)"
            )
        for image in karpathy_entries(path, self.restval, problems):
            if image.key in annotated:
                yield image.key, image.split
            else:
                problems.add("image of the split file without annotations", image.file)


def _annotation_file(
    path: Path, holds: str, parts: tuple[str, ...] = ("images", "annotations")
) -> dict[str, Any]:
    content = load_json(path, holds)
    for part in parts:
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise SourceError(f"{path} does not hold {holds}: it has no list {part!r}")
    return content


def _parsed(
    content: dict[str, Any], part: str, parse: Callable[[Any], _T], path: Path, problems: Problems
) -> Iterator[_T]:
    """Yields the parsed entries of a list; skips malformed ones."""
    for number, entry in enumerate(content[part]):
        try:
            parsed = parse(entry)
        except (KeyError, TypeError) as error:
            where = f"{path} {part}[{number}]"
            problems.add("malformed entry of the annotations", f"{where}: {fault(error)}")
        else:
            yield parsed


def _image(entry: Any) -> tuple[str, str]:
    return identifier(entry["id"]), string(entry["file_name"])


def _caption(entry: Any) -> tuple[str, Caption]:
    caption = Caption(identifier(entry["id"]), string(entry["caption"]))
    return identifier(entry["image_id"]), caption


def _instance(entry: Any) -> tuple[str, int]:
    return identifier(entry["image_id"]), _whole(entry["category_id"])


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"the id of a category is {value!r}")
    return value
