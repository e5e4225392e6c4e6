"""CUB Captions, from CUB-200-2011 and the captions of Reed et al."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from data_pipelines.photo_files import UnreadableError, file_bytes, inside
from data_pipelines.sources.base import (
    Caption,
    Entry,
    FolderSource,
    Problems,
    SourceError,
    Split,
    UserPath,
    where_to_get,
)
from data_pipelines.sources.text_files import decode, read_lines
from keras_xmr.utils.files import lines_of


class CubSource(FolderSource):
    """CUB Captions (Chun et al. 2021, section 4.1.2): images and captions of 200 bird classes.

    Every caption of a class is relevant to every image of the class. The class splits
    are as in Xian et al. 2017.

    With `setting: zero_shot` the images of the test classes are the test split, and the model
    has seen none of their classes. With `setting: seen` the test split holds other images of
    the training classes. In both, the images held out for the seen setting are never trained on.
    With `setting: all_classes` the test classes are training classes, too, and the test split holds
    held-out images of all 200.
    """

    label_kind: ClassVar[Literal["none", "class", "set"]] = "class"
    origin: ClassVar[str] = where_to_get(
        "CUB Captions, and where to put them", "https://data.caltech.edu/records/65de6-vp158"
    )

    name: Literal["cub"] = "cub"

    root: UserPath
    """Folder of CUB-200-2011: it holds `images.txt`, `image_class_labels.txt`, `images/`."""

    captions: str = "text_c10"
    """Folder of the captions, under `root`: one folder per class, one text file per image."""

    train_classes: str = "trainvalclasses.txt"
    """File with the names of the training classes, one per line, under `root`."""

    val_classes: str | None = None
    """File with the names of validation classes. Without one (null), the validation split
    holds the images of the training classes that are held out."""

    test_classes: str = "testclasses.txt"
    """File with the names of the test classes."""

    setting: Literal["zero_shot", "seen", "all_classes"] = "zero_shot"
    """Whether the test split holds unseen classes, held-out images of the seen ones, or held-out
    images of all classes, which are then all trained."""

    held_out: str | None = None
    """File with the images of the training classes that are held out (`seen_test_images.txt` of
    Chun et al.), one `<class>/<file>` per line. Without one (null), they are drawn by a hash of
    their names."""

    held_out_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the images that is held out, without such a file."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order of `images.txt`."""
        labels = self._labels("image_class_labels.txt")
        images = list(self._table("images.txt"))
        splits = self._class_splits({name.partition("/")[0] for _, name in images})
        listed = None if self.held_out is None else set(self._lines(self.held_out))
        held_out_split: Split | None = "val" if self.val_classes is None else None
        if self.setting != "zero_shot":
            held_out_split = "test"
        for key, name in images:
            bird = name.partition("/")[0]
            if key not in labels:
                problems.add("image without a class", name)
                continue
            if bird not in splits:
                problems.add("image of a class in no list", name)
            split = splits.get(bird)
            is_held_out = self._is_drawn(name) if listed is None else name in listed
            if split == "train" and is_held_out:
                split = held_out_split
            if split is not None:
                yield Entry(name, split, self._captions(name, problems), (labels[key],), name)

    @property
    def photos_folder(self) -> Path:
        """Folder of the photos."""
        return self.root / "images"

    def _class_splits(self, image_classes: set[str]) -> dict[str, Split | None]:
        """Reads the split of each class; None if its images are not used.

        Raises:
            SourceError: If a list is empty or names a class without images, or a class is both
                for training and for testing.
        """
        lists: dict[Split, str | None] = {
            "train": self.train_classes,
            "test": self.test_classes,
            "val": self.val_classes,
        }
        splits: dict[str, Split | None] = {}
        for split, list_name in lists.items():
            if list_name is None:
                continue
            path, names = self.root / list_name, set(self._lines(list_name))
            if not names:
                raise SourceError(f"{path} names no class")
            if without := sorted(names - image_classes):
                raise SourceError(
                    f"{path}: {len(without):,} of its {len(names):,} classes have no image in "
                    f"{self.root / 'images.txt'}, such as {without[0]!r}. Is one of the two files "
                    "cut off, or of another data set?"
                )
            if split == "test" and (both := sorted(names & splits.keys())):
                raise SourceError(
                    f"{self.root}: classes are in both {self.train_classes} and "
                    f"{self.test_classes}: {', '.join(both[:5])}"
                )
            splits |= dict.fromkeys(names, self._used_as(split))
        return splits

    def _used_as(self, split: Split) -> Split | None:
        """Returns the split of the classes of a list."""
        if split != "test" or self.setting == "zero_shot":
            return split
        return "train" if self.setting == "all_classes" else None

    def _is_drawn(self, name: str) -> bool:
        digest = hashlib.sha256(name.encode()).digest()
        return int.from_bytes(digest[:8]) / 2**64 < self.held_out_share

    def _captions(self, name: str, problems: Problems) -> tuple[Caption, ...]:
        try:
            file = inside(self.root / self.captions, name).with_suffix(".txt")
            text = decode(file_bytes(file), errors="replace")
        except FileNotFoundError as error:
            problems.add("image without a caption file", str(error.filename))
            return ()
        except (OSError, ValueError, UnreadableError) as error:
            problems.add("unreadable caption file", f"{name}: {error}")
            return ()
        texts = [line.strip() for line in lines_of(text)]
        return tuple(Caption(f"{name}#{i}", text) for i, text in enumerate(texts) if text)

    def _lines(self, name: str) -> list[str]:
        holds = (
            "a list of CUB-200-2011: root must be its folder, with the captions of Reed et al. "
            "and the class splits of Xian et al."
        )
        return [line.strip() for line in read_lines(self.root / name, holds) if line.strip()]

    def _labels(self, name: str) -> dict[str, int]:
        """Returns the class of each image by its number; classes are numbered from 0."""
        labels = {}
        for key, label in self._table(name):
            if not (label.isdecimal() and len(label) < 7 and int(label)):
                raise SourceError(
                    f"{self.root / name}: the class of image {key} is {label!r}, not a positive "
                    "number"
                )
            labels[key] = int(label) - 1
        return labels

    def _table(self, name: str) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(self._lines(name), 1):
            key, _, value = line.partition(" ")
            if not value:
                raise SourceError(f"{self.root / name}:{number}: two columns expected: {line!r}")
            yield key, value.strip()
