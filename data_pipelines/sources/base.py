"""Base class of sources, and the entries of data sets."""

from __future__ import annotations

import abc
import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import scipy.sparse
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
)

from data_pipelines.photo_files import UnreadableError, file_bytes, inside
from keras_xmr.parts.registry import OneChoice
from keras_xmr.utils.documentation import page
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import user_path
from keras_xmr.utils.plugins import PluginError, plugin_classes
from keras_xmr.utils.tables import on_one_line

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption and its key in the data set.

    Attributes:
        key: Unique in the data set, for instance the annotation id of COCO.
        text: The original text.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An image with all its captions; the image itself is not read yet.

    Attributes:
        key: Unique in the data set: a file name or the id of the data set.
        split: The split of the image.
        captions: The captions, in the order of the data set.
        labels: Class ids (one, or several for a multi-label data set); empty without labels.
        file: The file, relative to a folder of the source.
        position: Row in the file, if a file or a seed has many images.
    """

    key: str
    split: Split
    captions: tuple[Caption, ...]
    labels: tuple[int, ...] = ()
    file: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """The bytes of an image file in any format of Pillow."""

    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class RegionArray:
    """R feature vectors of an image: float array (R, F)."""

    features: np.ndarray


class SourceError(UserError):
    """A data set cannot be read; the message says how to fix it."""


class MissingFileError(SourceError):
    """A file of a data set does not exist."""


@dataclass
class Problems:
    """Counts of skipped items by reason, with examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    most_examples: int = 200

    def add(self, reason: str, example: str) -> None:
        """Counts one item under `reason`, and keeps the first examples."""
        self.counts[reason] += 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < self.most_examples:
            # An unpaired surrogate could neither be printed nor written to the manifest.
            kept.append(example.encode("utf-8", "backslashreplace").decode())

    @property
    def total(self) -> int:
        """Total number of skipped items."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        lines = (
            f"skipped: {count:,} x {reason}, such as {on_one_line(self.examples[reason][0])}"
            for reason, count in sorted(self.counts.items())
        )
        return "\n".join(lines)


def where_to_get(what: str, address: str) -> str:
    """Returns the `origin` of a source that the page on reproduction describes."""
    return f"{page('how_to/reproduce.md')} says where to get {what}: {address}"


class Source(BaseModel, abc.ABC):
    """Base class of sources: data sets in their original files. A subclass is a config section.

    A subclass sets `name` to a unique `Literal`, declares its options as fields, and implements
    `entries` and `read`. Entries hold text, never pixels.

    Attributes:
        holds: Kind of the results of `read`.
        label_kind: Kind of labels: none, one class, or a set of labels.
        origin: Where to get the data set, for messages about missing files.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    holds: ClassVar[Literal["images", "regions"]] = "images"
    label_kind: ClassVar[Literal["none", "class", "set"]] = "none"
    origin: ClassVar[str] = f"{page('how_to/data.md')} shows the files of every kind of data set"

    name: str

    def __getstate__(self) -> dict[Any, Any]:
        """Returns the options alone for other processes, without files that are mapped."""
        return super().__getstate__() | {"__dict__": dict(self)}

    @abc.abstractmethod
    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields every image of every split, in the order of the data set.

        Args:
            problems: Counts skipped annotations.

        Raises:
            SourceError: If a file that describes the data set is missing or malformed.
        """

    @abc.abstractmethod
    def read(self, entry: Entry) -> EncodedImage | RegionArray:
        """Reads the image of an entry. Called from several threads.

        Raises:
            UnreadableError: If this image is missing or broken.
        """

    @property
    def photos_folder(self) -> Path | None:
        """Folder of the photos, or None if they are not files in a folder."""
        return None

    def file_of(self, entry: Entry) -> Path | None:
        """Returns the file that holds the image of an entry; None if it is generated."""
        del entry
        return None

    def judgement_files(self) -> Mapping[str, Path]:
        """Returns files of further judgements of the test split in the data set, by name."""
        return {}

    def truth(self, entries: Sequence[Entry]) -> scipy.sparse.csr_array | None:
        """Computes the exhaustive ground truth, if it is known.

        Args:
            entries: The images of one split, in order.

        Returns:
            A boolean matrix (images, captions), true where the caption is true of the image,
            or None where only the annotated pairs are known. Captions are counted over the
            entries in order.
        """
        del entries
        return None


Share = Annotated[float, Field(ge=0, lt=1)]
"""A share of the images."""


def draw_split(key: str, val_share: float, test_share: float) -> Split:
    """Draws the split of an image from a hash of its key, independent of other images."""
    digest = hashlib.sha256(composed(key).encode(errors="replace")).digest()
    draw = int.from_bytes(digest[:8]) / 2**64
    if draw < test_share:
        return "test"
    return "val" if draw < test_share + val_share else "train"


UserPath = Annotated[Path, AfterValidator(user_path)]
"""A path that may begin with `~`."""


class FolderSource(Source):
    """A source of one folder, of photos in `photos_folder` unless it reads them otherwise."""

    root: UserPath
    """Folder that holds everything below."""

    def file_of(self, entry: Entry) -> Path:
        """Returns the file that holds the image of an entry."""
        return find(self.photos_folder or self.root, entry.file)

    def read(self, entry: Entry) -> EncodedImage | RegionArray:
        """Reads a photo; see `Source.read`."""
        return _read_image(self.file_of(entry))


def composed(name: str) -> str:
    """Returns a name with composed letters (NFC); macOS writes names with separate accents."""
    return unicodedata.normalize("NFC", name)


def find(root: Path, name: str) -> Path:
    """Returns the path of the file `name` below `root`, however its accents are written there.

    Raises:
        UnreadableError: If the path is outside of `root` or invalid.
    """
    names = name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    paths = [inside(root, each) for each in dict.fromkeys(names)]
    return next(filter(os.path.exists, paths), paths[0])


def read_image_file(root: Path, name: str) -> EncodedImage:
    """Reads the image file `name` below `root`; see `find`.

    Raises:
        UnreadableError: If it is missing, cannot be read, or lies outside of `root`.
    """
    return _read_image(find(root, name))


def _read_image(path: Path) -> EncodedImage:
    try:
        return EncodedImage(file_bytes(path))
    except FileNotFoundError:
        raise UnreadableError(f"{path} does not exist") from None
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None


class OneSource(OneChoice):
    """Annotation of a field that holds a source.

    Args:
        *built_in: The built-in sources.
    """

    def __init__(self, *built_in: type[Source]) -> None:
        self._built_in = built_in

    def choices(self) -> dict[str, type[Source]]:
        """Returns every source by name, also of plugins.

        Raises:
            PluginError: If a source of a plugin has no name, or one that is taken.
        """
        sources: dict[str, type[Source]] = {}
        plugins: list[Any] = plugin_classes(Source)
        for source in (*self._built_in, *plugins):
            names = get_args(source.model_fields["name"].annotation)
            if len(names) != 1:
                raise PluginError(
                    f"{source.__module__}.{source.__name__} needs a unique name: "
                    'name: Literal["my_set"] = "my_set"'
                )
            if sources.setdefault(names[0], source) is not source:
                raise PluginError(
                    f"{source.__module__} has a source {names[0]!r}, and so has "
                    f"{sources[names[0]].__module__}; give it another name"
                )
        return sources
