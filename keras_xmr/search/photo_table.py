"""The photos of a folder: paths, descriptions and tags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from data_pipelines.photo_files import (
    PHOTO_SUFFIXES,
    UnreadableError,
    file_bytes,
    inside,
    visible_files,
)
from keras_xmr.utils import files
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.json_entries import is_text

FileState = tuple[int, int, int]
"""Size of a file in bytes, and times of the last change of its content, and of any change such as a
move, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Photo:
    """A photo of an index.

    Attributes:
        id: Number of the photo, which is unique in the index for all time.
        path: Path relative to the root of the photos, with `/`.
        bytes: Length of its file.
        modified: When the content of its file was changed, in nanoseconds.
        changed: When its file was changed or moved, in nanoseconds.
        sha256: Of its file.
        taken: Time of the shot by its EXIF data, ISO; empty if unknown.
        width: Of the photo the right way up, in pixels.
        height: Likewise.
        hash: Perceptual hash for near-duplicates: 128 bits in hexadecimal digits.
    """

    id: int
    path: str
    bytes: int
    modified: int
    changed: int
    sha256: str
    taken: str
    width: int
    height: int
    hash: str

    def to_dict(self) -> dict[str, int | str]:
        """Returns its fields by name, in a tenth of the time of `dataclasses.asdict`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


_NUMBERS = ("id", "bytes", "modified", "changed", "width", "height")
_DIGITS = ("sha256", "hash")
_ROW = np.dtype(
    [
        *((name, "<i8") for name in _NUMBERS),
        *(("sha256", "V32"), ("hash", "V16")),
        ("taken", "S19"),
    ]
)
"""A photo without its path."""

_END = b"\0"
"""Ends each path; no name of a file has it."""


class PhotoTable(Sequence[Photo]):
    """Photos in the order of their ids, which are made when they are asked for.

    Columns take less memory than objects, and can be mapped from a file.

    Args:
        rows: All but the paths, (photos,).
        paths: The paths in UTF-8, each with `_END`.

    Raises:
        ValueError: If they do not fit.
    """

    def __init__(self, rows: np.ndarray, paths: bytes) -> None:
        if rows.dtype != _ROW or rows.ndim != 1:
            raise ValueError("it does not describe photos")
        if not (np.diff(rows["id"]) > 0).all():
            raise ValueError("its photos are not in the order of their ids")
        paths.decode("utf-8")
        if paths.count(_END) != len(rows) or not paths.endswith(_END if len(rows) else b""):
            raise ValueError(f"{paths.count(_END):,} paths for {len(rows):,} photos")
        self._rows, self._text = rows, paths

    @classmethod
    def of(cls, photos: Iterable[Photo]) -> PhotoTable:
        """Makes the table of some photos."""
        photos = list(photos)
        rows = np.empty(len(photos), _ROW)
        for name in (*_NUMBERS, "taken"):
            rows[name] = [getattr(photo, name) for photo in photos]
        for name in _DIGITS:
            digits = "".join(getattr(photo, name) for photo in photos)
            rows[name] = np.frombuffer(bytes.fromhex(digits), _ROW[name])
        return cls(rows, _joined([photo.path for photo in photos]))

    @classmethod
    def read(cls, rows: Path, paths: Path) -> PhotoTable:
        """Maps the rows in a file, and reads the paths.

        Raises:
            OSError: If a file cannot be read.
            ValueError: If they are no descriptions, or of different photos.
        """
        return cls(np.load(rows, mmap_mode="r"), paths.read_bytes())

    def write_rows(self, path: Path) -> None:
        """Writes all but the paths as an array."""
        np.save(path, self._rows)

    def write_paths(self, path: Path) -> None:
        """Writes the paths, each with a NUL behind it."""
        path.write_bytes(self._text)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, number: int) -> Photo: ...

    @overload
    def __getitem__(self, number: slice) -> PhotoTable: ...

    def __getitem__(self, number: int | slice) -> Photo | PhotoTable:
        if isinstance(number, slice):
            return self.take(np.arange(len(self))[number])
        number = range(len(self))[number]
        begin = int(self._ends[number - 1]) + 1 if number else 0
        path = self._text[begin : int(self._ends[number])].decode("utf-8")
        row = self._rows[number]
        fields: dict[str, Any] = {name: int(row[name]) for name in _NUMBERS}
        fields |= {name: row[name].tobytes().hex() for name in _DIGITS}
        return Photo(path=path, taken=row["taken"].decode("ascii"), **fields)

    def take(self, numbers: np.ndarray) -> PhotoTable:
        """Returns the table of some photos by their numbers, ascending."""
        paths = self.paths
        return PhotoTable(self._rows[numbers], _joined([paths[n] for n in numbers.tolist()]))

    def extended(self, photos: Iterable[Photo]) -> PhotoTable:
        """Returns the table with more photos at its end."""
        more = PhotoTable.of(photos)
        return PhotoTable(np.concatenate([self._rows, more._rows]), self._text + more._text)

    def replaced(self, photos: Mapping[int, Photo]) -> PhotoTable:
        """Returns the table with other photos at some numbers."""
        rows, paths = self._rows.copy(), self.paths
        for number, photo in photos.items():
            rows[number] = PhotoTable.of([photo])._rows[0]
            paths[number] = photo.path
        return PhotoTable(rows, _joined(paths))

    def column(self, name: str) -> np.ndarray:
        """Returns a field of all photos but the path; `sha256` and `hash` are bytes."""
        values: np.ndarray = self._rows[name]
        return values

    @property
    def ids(self) -> np.ndarray:
        """The ids, int64 (photos,)."""
        return np.ascontiguousarray(self._rows["id"])

    @cached_property
    def _ends(self) -> np.ndarray:
        """Where each path ends in their text."""
        return np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord(_END))

    @property
    def paths(self) -> list[str]:
        """The paths."""
        return self._text.decode("utf-8").split(_END.decode())[:-1]

    def states(self) -> list[FileState]:
        """Returns the states of the files when they were read."""
        columns = (self._rows[name].tolist() for name in ("bytes", "modified", "changed"))
        return list(zip(*columns, strict=True))


def _joined(paths: Sequence[str]) -> bytes:
    return "".join(f"{path}\0" for path in paths).encode("utf-8")


def find_photos(root: Path, without: Path | None = None) -> Iterator[tuple[str, FileState]]:
    """Finds the photos below a folder, in the order of their names, with their state.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        root: The folder.
        without: A folder to skip, such as the index.

    Yields:
        The path relative to the root, with `/`, and the state of the file.
    """
    for folder, names in visible_files(root, without=without):
        below = folder.relative_to(root).as_posix()
        prefix, start = "" if below == "." else f"{below}/", os.path.join(folder, "")
        # A `Path` per photo would take most of the time of a server that watches a folder.
        for name in names:
            is_photo = name[name.rfind(".") :].lower() in PHOTO_SUFFIXES
            if is_photo and (state := file_state(start + name)) is not None:
                yield prefix + name, state


def file_state(path: str) -> FileState | None:
    """Returns the state of a file, or of a dangling link; None if it is gone."""
    for read_status in (os.stat, os.lstat):
        try:  # `suppress` takes a tenth of the time of a search.
            status = read_status(path)
        except OSError:
            continue
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return None


def check_root(root: Path) -> Path:
    """Checks the folder of photos, and returns its absolute path.

    Raises:
        UserError: If it is not a folder, or cannot be read.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; use the folder of your photos")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{root} cannot be read; change its permissions")
    return root.resolve()


def read_photo(root: Path, path: str) -> bytes:
    """Returns the bytes of a photo.

    Raises:
        UnreadableError: If it is outside of the root, cannot be read, or its name is not valid
            UTF-8.
    """
    if not is_text(path):
        raise UnreadableError(f"{path!a} has a name that is not UTF-8; rename it")
    file = inside(root, path)
    try:
        return file_bytes(file)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None


def _tag_rows(path: Path) -> Iterator[dict[str, str]]:
    with files.reading(path, "CSV with image,tag", UserError):
        wanted = ", and should be 'image,tag'"
        for _, fields in files.read_csv(path, ("image", "tag"), wanted, UserError):
            if isinstance(fields, str):
                raise UserError(fields)
            yield fields


def read_tags(path: Path) -> dict[str, list[str]]:
    """Reads the tags of each photo, by its path relative to the root.

    Args:
        path: CSV, UTF-8, with the columns `image,tag` and a row per tag of a photo; a field
            may have several, separated by `;`.

    Raises:
        UserError: If it cannot be read, lacks a column, or a row has other fields.
    """
    tags_by_image: dict[str, set[str]] = {}
    for row in _tag_rows(path):
        tags = (tag.strip() for tag in row["tag"].split(";"))
        tags_by_image.setdefault(row["image"].strip(), set()).update(t for t in tags if t)
    return {image: sorted(tags) for image, tags in sorted(tags_by_image.items())}
