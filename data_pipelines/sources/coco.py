"""COCO, Flickr30K, Flickr8K: annotations of COCO, split files of Karpathy, and lists of photos."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from data_pipelines.photo_files import UnreadableError, file_bytes
from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    Entry,
    FolderSource,
    Problems,
    Source,
    SourceError,
    Split,
    find,
    where_to_get,
)
from data_pipelines.sources.photos import CsvSource
from data_pipelines.sources.text_files import load_json, only_text, read_lines, reading
from keras_xmr.utils.json_entries import (
    fault,
    identifier,
    karpathy_keys,
    karpathy_path,
    string,
)

_Raw = TypeVar("_Raw")
_T = TypeVar("_T")

_SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "val", "test": "test"}
_INSTANCES = "instance annotations, for labels (data.source.instances=[] does without)"


def karpathy_entries(
    path: Path,
    restval: bool,
    problems: Problems,
    holds: str = "the images of a split file of Karpathy",
) -> Iterator[Entry]:
    """Yields the images of a split file in its order, with the keys of `karpathy_keys`.

    Args:
        path: The split file.
        restval: Whether images of the split `restval` belong to the training split, as in the
            papers, or are skipped.
        problems: Counts skipped entries.
        holds: Description of its content, for messages.

    Raises:
        SourceError: If the file is not a split file.
    """
    images = _annotation_file(path, holds, ("images",))["images"]
    keyed = zip(images, karpathy_keys(images), strict=True)

    def parse(keyed_image: tuple[Any, str]) -> Entry | None:
        return _karpathy_entry(*keyed_image, restval)

    yield from filter(None, _parsed(keyed, parse, f"{path} images", problems))


def _karpathy_entry(image: Any, key: str, restval: bool) -> Entry | None:
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

    origin: ClassVar[str] = where_to_get(
        "Flickr30K, and where to put it", "https://shannon.cs.illinois.edu/DenotationGraph/"
    )

    name: Literal["flickr30k"] = "flickr30k"

    images: str = "flickr30k-images"
    """Folder of the photos, under `root`."""

    split_file: str = "dataset_flickr30k.json"
    """The Karpathy split file with the captions, under `root`."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of the split file."""
        return karpathy_entries(self.root / self.split_file, False, problems)

    @property
    def photos_folder(self) -> Path:
        """Folder of the photos."""
        return self.root / self.images


class CocoSource(FolderSource):
    """COCO Captions (Chen et al. 2015) with the splits of Karpathy and Fei-Fei (2015).

    Labels are the object categories of all instance annotations together, numbered from 0 in the
    order of their COCO ids: 80 in COCO itself.
    """

    label_kind: ClassVar[Literal["none", "class", "set"]] = "set"
    origin: ClassVar[str] = where_to_get(
        "COCO Captions, and where to put them", "https://cocodataset.org/#download"
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
    training split and the second the validation split, without a test split."""

    restval: bool = True
    """Whether the photos that Karpathy's split calls `restval` belong to the training split, as
    in the papers."""

    captions_per_image: Annotated[int, Field(ge=1)] | None = None
    """Largest number of captions of a photo: the first ones of the split file (or of the caption
    file). A few photos have six or seven; the papers count five. Null takes all of them."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of the split file (or of the caption files)."""
        images, captions = self._read_captions(problems)
        labels = self._read_labels(problems)
        for key, split, listed in self._order(images, problems):
            file_name, _ = images[key]
            its_captions = captions[key]
            if self.captions_per_image is not None:
                place = {caption: number for number, caption in enumerate(listed)}
                its_captions.sort(key=lambda caption: place.get(caption.key, len(place)))
            kept = tuple(its_captions[: self.captions_per_image])
            yield Entry(key, split, kept, tuple(sorted(labels[key])), file_name)

    def file_of(self, entry: Entry) -> Path:
        """Returns the photo in the first folder that has it."""
        paths = (find(self.root / folder, entry.file) for folder in self.images)
        if (path := next(filter(os.path.exists, paths), None)) is None:
            folders = ", ".join(self.images)
            raise UnreadableError(f"{entry.file} is in none of {folders} under {self.root}")
        return path

    def _read_captions(
        self, problems: Problems
    ) -> tuple[dict[str, tuple[str, Split]], dict[str, list[Caption]]]:
        """Reads the file and the split of every image, and its captions, by its id."""
        images: dict[str, tuple[str, Split]] = {}
        captions: dict[str, list[Caption]] = defaultdict(list)
        for name, split in zip(self.captions, SPLITS, strict=False):
            path = self.root / name
            content = _annotation_file(path, "caption annotations")
            for key, file_name in _parsed(content["images"], _image, f"{path} images", problems):
                if key in images:
                    problems.add("duplicate image id", f"{key} in {path}")
                    continue
                images[key] = file_name, split
            annotations = _parsed(content["annotations"], _caption, f"{path} annotations", problems)
            for key, caption in annotations:
                if key in images:
                    captions[key].append(caption)
                else:
                    example = f"{caption.key} of image {key} in {path}"
                    problems.add("caption of an unknown image", example)
        return images, captions

    def _read_labels(self, problems: Problems) -> dict[str, set[int]]:
        """Reads the labels of every image with an instance, by its id."""
        categories: dict[str, set[int]] = defaultdict(set)
        known: set[int] = set()
        for name in self.instances:
            path = self.root / name
            content = _annotation_file(path, _INSTANCES, ("annotations", "categories"))
            listed = set(
                _parsed(
                    content["categories"], lambda c: _whole(c["id"]), f"{path} categories", problems
                )
            )
            known |= listed
            annotations = _parsed(
                content["annotations"], _instance, f"{path} annotations", problems
            )
            for key, category in annotations:
                if category in listed:
                    categories[key].add(category)
                else:
                    problems.add("instance of an unknown category", f"{category} in {path}")
        # One numbering for all files, which may list different categories.
        number = {category: position for position, category in enumerate(sorted(known))}
        labels = {key: {number[category] for category in its} for key, its in categories.items()}
        return defaultdict(set, labels)

    def _order(
        self, images: dict[str, tuple[str, Split]], problems: Problems
    ) -> Iterator[tuple[str, Split, list[str]]]:
        """Yields the key and the split of every image, and the listed keys of its captions."""
        if self.split_file is None:
            yield from ((key, split, []) for key, (_, split) in images.items())
            return
        holds = "a split file of Karpathy (data.source.split_file=null takes the splits of COCO)"
        path = self.root / self.split_file
        for image in karpathy_entries(path, self.restval, problems, holds):
            if image.key in images:
                yield image.key, image.split, [caption.key for caption in image.captions]
            else:
                problems.add("image of the split file without annotations", image.file)


def _annotation_file(
    path: Path, holds: str, keys: tuple[str, ...] = ("images", "annotations")
) -> dict[str, Any]:
    content = load_json(path, holds)
    for key in keys:
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise SourceError(f"{path} does not hold {holds}: it has no list {key!r}")
    return content


def _parsed(
    entries: Iterable[_Raw], parse: Callable[[_Raw], _T], list_name: str, problems: Problems
) -> Iterator[_T]:
    """Yields the parsed entries of a list; skips malformed ones."""
    for number, entry in enumerate(entries):
        try:
            parsed = parse(entry)
        except (KeyError, TypeError, ValueError) as error:
            where = f"{list_name}[{number}]"
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


def read_captions_file(path: Path, problems: Problems) -> list[Entry]:
    """Reads the captions of a file.

    Args:
        path: A CSV file of `image,caption` rows, a caption annotation file of COCO
            (`captions_val2014.json`), or a split file of Karpathy (`dataset_coco.json`).
        problems: Counts skipped rows.

    Returns:
        The images with their captions, in the order of the file. All splits are "train" unless the
        file is a split file.

    Raises:
        SourceError: If the file is missing or malformed, or holds no captions.
    """
    entries = list(only_text(_source(path).entries(problems), problems))
    if not any(entry.captions for entry in entries):
        raise SourceError(
            f"{path} holds no captions. It should be CSV with the columns image,caption, a caption "
            "annotation file of COCO, or a split file of Karpathy"
        )
    return entries


def is_split_file(path: Path) -> bool:
    """Returns whether a captions file is a split file of Karpathy."""
    return path.suffix.lower() == ".json" and isinstance(_source(path), Flickr30kSource)


def _source(path: Path) -> Source:
    root, name = path.parent, path.name
    if path.suffix.lower() != ".json":
        return CsvSource(root=root, captions=name, val_share=0, test_share=0)
    with reading(path, "captions"):
        is_coco = b'"annotations"' in file_bytes(path)
    if is_coco:
        return CocoSource(root=root, captions=(name,), instances=(), split_file=None)
    return Flickr30kSource(root=root, split_file=name)


class Flickr8kSource(FolderSource):
    """Flickr8K (Hodosh et al. 2013) with its official splits and human judgements.

    The file of captions has 8,092 photos. The 92 without a split are skipped, and counted as
    problems; the file of one of them, `2258277193_586949ec62.jpg.1`, does not exist.
    """

    name: Literal["flickr8k"] = "flickr8k"

    images: str = "Flicker8k_Dataset"
    """Folder of the photos, under `root`."""

    captions: str = "Flickr8k.token.txt"
    """File of captions, under `root`: `photo.jpg#n<TAB>caption`. The id of the caption is before
    the tab."""

    train: str = "Flickr_8k.trainImages.txt"
    """Names of the training photos, one per line, under `root`."""

    val: str = "Flickr_8k.devImages.txt"
    """Names of the validation photos."""

    test: str = "Flickr_8k.testImages.txt"
    """Names of the test photos."""

    experts: str = "ExpertAnnotations.txt"
    """Judgements by three experts per pair, under `root`: `experts` in `evaluation.judgements`."""

    crowd: str = "CrowdFlowerAnnotations.txt"
    """Judgements by three or more people per pair, under `root`: `crowd` in
    `evaluation.judgements`."""

    @property
    def photos_folder(self) -> Path:
        """Folder of the photos."""
        return self.root / self.images

    def judgement_files(self) -> Mapping[str, Path]:
        """Returns the judgements of the test photos."""
        return {"experts": self.root / self.experts, "crowd": self.root / self.crowd}

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the photos split by split, in the order of the files of names."""
        captions = self._captions(problems)
        seen: set[str] = set()
        for split in SPLITS:
            path = self.root / getattr(self, split)
            for number, line in enumerate(read_lines(path, "one photo per line"), 1):
                name = line.strip()
                if name in seen:
                    problems.add("duplicate photo", f"{path}:{number}: {name}")
                elif name:
                    seen.add(name)
                    yield Entry(name, split, tuple(captions.get(name, ())), file=name)
        for name in captions:
            if name not in seen:
                problems.add("photo in none of the files of names", name)

    def _captions(self, problems: Problems) -> dict[str, list[Caption]]:
        """Returns the captions of each photo, in the order of the file."""
        path = self.root / self.captions
        captions: dict[str, list[Caption]] = {}
        seen: set[str] = set()
        for number, line in enumerate(read_lines(path, "photo.jpg#n<TAB>caption"), 1):
            key, tab, text = line.strip().partition("\t")
            photo, mark, caption = key.rpartition("#")
            if not line.strip():
                continue
            # A space here is of a caption with a tab, which a space separates from its id.
            if not (tab and mark) or " " in caption:
                problems.add("malformed line of the captions", f"{path}:{number}: {line[:80]!r}")
            elif key in seen:
                problems.add("duplicate caption id", f"{path}:{number}: {key}")
            else:
                seen.add(key)
                captions.setdefault(photo, []).append(Caption(key, text))
        return captions
