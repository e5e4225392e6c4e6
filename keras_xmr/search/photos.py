"""The photos of a folder: paths, descriptions and thumbnails."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from PIL import Image

from data_pipelines.photo_files import (
    PHOTO_SUFFIXES,
    UnreadableError,
    file_bytes,
    inside,
    visible_files,
)
from data_pipelines.pixels import naming, open_image, orientation
from keras_xmr.utils import files
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.json_entries import is_text
from keras_xmr.utils.vectors import chunks

_EXIF, _TAKEN = 0x8769, 0x9003


@dataclass(frozen=True, slots=True)
class Photo:
    """A photo of an index.

    Attributes:
        id: Its number, which is unique in the index for all time.
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

    @property
    def state(self) -> FileState:
        """The state of its file when it was read."""
        return self.bytes, self.modified, self.changed

    def to_dict(self) -> dict[str, int | str]:
        """Returns its fields by name, in a tenth of the time of `dataclasses.asdict`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def folder(self) -> str:
        """Its folder relative to the root; empty for the root."""
        return self.path.rpartition("/")[0]


def read_photos(path: Path) -> list[Photo]:
    """Reads the descriptions of photos that an index has written as JSON.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not JSON.
        TypeError: If it has other fields.
    """
    # Each becomes a photo at once: a list of dictionaries would take twice the memory.
    photos: list[Photo] = json.loads(path.read_bytes(), object_hook=lambda entry: Photo(**entry))
    return photos


FileState = tuple[int, int, int]
"""Size of a file in bytes, and times of the last change of its content, and of any change such as a
move, in nanoseconds."""


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


def describe(path: str, data: bytes, state: FileState, pixels: np.ndarray) -> Photo:
    """Describes a photo that has no id yet.

    Args:
        path: Path relative to the root.
        data: The bytes of its file.
        state: The state of its file.
        pixels: Its pixels, uint8 (H, W, 3).

    Raises:
        UnreadableError: If its header cannot be read.
    """
    with naming(data, path):
        image = open_image(data)
        turned = image.format != "TIFF" and orientation(image.info.get("exif", b"")) >= 5
        width, height = image.size[::-1] if turned else image.size
    return Photo(
        id=-1,
        path=path,
        bytes=state[0],
        modified=state[1],
        changed=state[2],
        sha256=hashlib.sha256(data).hexdigest(),
        taken=_taken(image),
        width=width,
        height=height,
        hash=perceptual_hash(pixels),
    )


def perceptual_hash(pixels: np.ndarray) -> str:
    """Returns which pixels of a small grey version are brighter than left and above."""
    small = Image.fromarray(pixels).convert("L").resize((9, 9), Image.Resampling.BOX)
    grey = np.asarray(small, np.int16)
    across, down = np.diff(grey, axis=1)[:8] > 0, np.diff(grey, axis=0)[:, :8] > 0
    return np.packbits(np.concatenate([across.ravel(), down.ravel()])).tobytes().hex()


def _taken(image: Image.Image) -> str:
    """Returns the time of the shot by its EXIF data, ISO; empty if unknown.

    The times of the file and of later edits differ from it.
    """
    try:
        text = str(image.getexif().get_ifd(_EXIF)[_TAKEN]).strip("\0 ")
        return datetime.strptime(text, "%Y:%m:%d %H:%M:%S").isoformat(timespec="seconds")
    except Exception:  # Any EXIF data may be broken, and none are required.
        return ""


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


_DIFFERENT = 7
"""Maximum number of the 128 bits by which near-duplicates differ. Then at least one of their 8
pieces of 16 bits is the same."""

_PLAIN = 16
"""Minimum number of bits set, and not set: photos with fewer are plain areas, which all match."""

_BITS = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1)
_BITS = _BITS.astype(np.uint8)
"""Number of bits of every piece."""


def near_duplicates(photos: Iterable[Photo]) -> dict[int, int]:
    """Finds near-duplicates of photos with smaller ids, and the first of these.

    Args:
        photos: Photos in the order of their ids.
    """
    photos = list(photos)
    firsts: dict[str, int] = {}
    # The row of the first photo with the same file, or else with the same hash.
    same = [firsts.setdefault(photo.sha256, row) for row, photo in enumerate(photos)]
    hashes = np.frombuffer(bytes.fromhex("".join(photo.hash for photo in photos)), np.uint8)
    pieces = hashes.reshape(-1, 16).view(np.uint16)
    bits = _BITS[pieces].sum(axis=1, dtype=np.int64)
    firsts = {}
    for row in np.flatnonzero((bits >= _PLAIN) & (bits <= 128 - _PLAIN)).tolist():
        if same[row] == row:
            same[row] = firsts.setdefault(photos[row].hash, row)
    rows = np.array(sorted(firsts.values()), np.int64)
    originals = {}
    for later, earlier in _near_pairs(pieces[rows]).tolist():
        # Pairs are sorted: whether the earlier one is an original is known, and it is the first.
        if later not in originals and earlier not in originals:
            originals[later] = earlier
    for later, earlier in originals.items():
        same[rows[later]] = int(rows[earlier])
    duplicates: dict[int, int] = {}
    for row, first in enumerate(same):
        if first != row:
            duplicates[photos[row].id] = duplicates.get(photos[first].id, photos[first].id)
    return duplicates


def _near_pairs(pieces: np.ndarray) -> np.ndarray:
    """Returns rows of hashes uint16 (N, 8) that are near: int64 (pairs, 2), the later one first."""
    found = [np.empty((0, 2), np.int64)]
    for values in pieces.T:
        order = np.argsort(values, kind="stable")
        ordered, begins, distance = values[order], np.arange(len(order)), 1
        # Of rows with one piece in common, each is compared with the next, the second next, ...
        while True:
            begins = begins[: np.searchsorted(begins, len(order) - distance)]
            begins = begins[ordered[begins] == ordered[begins + distance]]
            if not len(begins):
                break
            for part in chunks(begins, 1 << 20):
                earlier, later = order[part], order[part + distance]
                different = _BITS[pieces[earlier] ^ pieces[later]].sum(axis=1, dtype=np.uint8)
                near = different <= _DIFFERENT
                found.append(np.stack([later[near], earlier[near]], axis=1))
            distance += 1
    return np.unique(np.concatenate(found), axis=0)
