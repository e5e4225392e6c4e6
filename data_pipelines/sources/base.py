"""What a data set is to the rest of the pipeline: entries, and a way to read one of them."""

from __future__ import annotations

import abc
import errno
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from data_pipelines.documentation import page
from data_pipelines.errors import UserError
from data_pipelines.tables import on_one_line

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

RAW_SUFFIXES = frozenset(
    {
        *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".iiq", ".kdc", ".mrw", ".nef"),
        *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".srw", ".x3f"),
    }
)
"""What the names of files end in that cameras write before they make a photo, in small letters."""

PHOTO_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        *(".avif", ".heic", ".heif", ".jxl"),
        *RAW_SUFFIXES,
    }
)
"""What the names of photos end in, in small letters. RAW files are looked at to say that they are
not read."""


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption and the key by which its data set knows it.

    Attributes:
        key: Unique in the data set, for instance the annotation id of COCO.
        text: The caption as its author wrote it.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One image with all its captions, before anything of the image has been read.

    Attributes:
        key: Unique in the data set: a file name or the id of the data set.
        split: The split that the image belongs to.
        captions: Its captions, in the order of the data set.
        labels: Class ids (one, or several for a multi-label data set); empty without labels.
        file: The file that holds it, under a folder that its source knows.
        position: Its row, where one file or one seed holds many images.
    """

    key: str
    split: Split
    captions: tuple[Caption, ...]
    labels: tuple[int, ...] = ()
    file: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as the bytes of its file, in any format that Pillow reads."""

    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """An image as R feature vectors: float array (R, F)."""

    features: np.ndarray


class UnreadableError(Exception):
    """One item of a data set cannot be used; the message says which and why."""


class SourceError(UserError):
    """A data set cannot be read at all; the message says what to do."""


class MissingFileError(SourceError):
    """A file of a data set does not exist."""


@dataclass
class Problems:
    """Counts what had to be skipped, by reason, with a few examples of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    keep: int = 10

    def add(self, reason: str, what: str) -> None:
        """Counts one item under `reason`, and remembers `what` if it is among the first."""
        self.counts[reason] += 1
        kept = self.examples.setdefault(reason, [])
        if len(kept) < self.keep:
            # Half of a character could be neither printed nor written to the manifest.
            kept.append(what.encode("utf-8", "backslashreplace").decode())

    @property
    def total(self) -> int:
        """How many items were skipped, whatever the reason."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        lines = (
            f"skipped: {count:,} x {reason}, such as {on_one_line(self.examples[reason][0])}"
            for reason, count in sorted(self.counts.items())
        )
        return "\n".join(lines)


class Source(BaseModel, abc.ABC):
    """A data set in the files that users have. A subclass is one section of the config.

    A subclass sets `name` to a `Literal` of its own, declares its options as fields, and
    implements `entries` and `read`. Entries are cheap: they hold text, never pixels.

    Attributes:
        holds: What `read` gives.
        label_kind: What the labels of an entry are: nothing, one class, or a set of labels.
        origin: Where to get the files of the data set, for messages about those that are missing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    holds: ClassVar[Literal["images", "regions"]] = "images"
    label_kind: ClassVar[Literal["none", "class", "set"]] = "none"
    origin: ClassVar[str] = f"{page('data.md')} shows the files of every kind of data set"

    name: str

    @abc.abstractmethod
    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields every image of every split, in the order of the data set.

        Args:
            problems: Where annotations that cannot be used are counted.

        Raises:
            SourceError: If a file that describes the data set is missing or malformed.
        """

    @abc.abstractmethod
    def read(self, entry: Entry) -> EncodedImage | Regions:
        """Reads the image of one entry. Called from several threads.

        Raises:
            UnreadableError: If this one image is missing or broken.
        """

    @property
    def photos_folder(self) -> Path | None:
        """The folder of the photos, where they are files in one."""
        return None

    @property
    def captions_in_photos(self) -> bool:
        """Whether the files of photos may hold their captions."""
        return False

    def judgement_files(self) -> Mapping[str, Path]:
        """Files of further judgements of the test split that come with the data set, by name."""
        return {}

    def truth(self, entries: Sequence[Entry]) -> scipy.sparse.csr_array | None:
        """The exhaustive truth, where a data set can know it.

        Args:
            entries: The images of one split, in order.

        Returns:
            A boolean matrix (images, captions), true where the caption is true of the image,
            or None where only the annotated pairs are known. Captions are counted over the
            entries in order.
        """
        del entries
        return None


def inside(root: Path, name: str) -> Path:
    """The path of `name` under `root`.

    Raises:
        UnreadableError: If the name points outside of `root`, or nowhere.
    """
    path = root / name
    try:
        is_inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # A loop of links; NUL in the name.
        raise UnreadableError(f"{name!r} is not the name of a file: {error}") from None
    if not is_inside:
        raise UnreadableError(f"{name!r} points outside of {root}")
    return path


def check_file(path: Path) -> Path:
    """The same path; a pipe or device, which might never end, is refused.

    Raises:
        OSError: If it is one, or does not exist.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path


def file_bytes(path: Path) -> bytes:
    """The bytes of a file that `check_file` lets pass.

    Raises:
        OSError: If it cannot be read.
    """
    return check_file(path).read_bytes()


def read_image_file(root: Path, name: str) -> EncodedImage:
    """The bytes of the image file `name` under `root`.

    Raises:
        UnreadableError: If it is missing, cannot be read, or lies outside of `root`.
    """
    path = inside(root, name)
    try:
        return EncodedImage(file_bytes(path))
    except FileNotFoundError:
        raise UnreadableError(f"{path} does not exist") from None
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None
