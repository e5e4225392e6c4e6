"""Descriptions of photos by their files and pixels, and the near-duplicates among them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import numpy as np
from PIL import Image

from data_pipelines.pixels import naming, open_image, orientation
from keras_xmr.search.photo_table import FileState, Photo, PhotoTable
from keras_xmr.utils.vectors import chunks

_EXIF, _TAKEN = 0x8769, 0x9003


def describe(path: str, data: bytes, state: FileState, pixels: np.ndarray) -> Photo:
    """Describes a photo that has no id yet.

    Args:
        path: Path relative to the root.
        data: The bytes of its file.
        state: The state of its file.
        pixels: The pixels, uint8 (H, W, 3).

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


_DIFFERENT = 7
"""Maximum number of the 128 bits by which near-duplicates differ. Then at least one of their 8
pieces of 16 bits is the same."""

_PLAIN = 16
"""Minimum number of bits set, and not set: photos with fewer are plain areas, which all match."""

_BITS = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1)
_BITS = _BITS.astype(np.uint8)
"""Number of bits of every piece."""


_FEW = 100
"""Maximum number of photos that are compared with all others one by one."""


def near_duplicates(
    photos: PhotoTable, known: Mapping[int, int] | None = None, compared: int = 0
) -> dict[int, int]:
    """Finds near-duplicates of photos with smaller ids, and the first of these.

    Args:
        photos: Photos in the order of their ids.
        known: The near-duplicates among the first of them.
        compared: The number of these. A few more are compared with all, one by one.
    """
    if compared and len(photos) - compared <= _FEW:
        return _with_later(photos, known or {}, compared)
    ids = photos.ids.tolist()
    firsts: dict[bytes, int] = {}
    # The row of the first photo with the same file, or else with the same hash.
    files = photos.column("sha256").tolist()
    same = [firsts.setdefault(sha256, row) for row, sha256 in enumerate(files)]
    pieces, has_detail = _hashes(photos)
    firsts = {}
    for row in np.flatnonzero(has_detail).tolist():
        if same[row] == row:
            same[row] = firsts.setdefault(pieces[row].tobytes(), row)
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
            duplicates[ids[row]] = duplicates.get(ids[first], ids[first])
    return duplicates


def _hashes(photos: PhotoTable) -> tuple[np.ndarray, np.ndarray]:
    """Returns hashes in pieces, uint16 (photos, 8), and which are not of plain areas."""
    pieces = np.frombuffer(photos.column("hash").tobytes(), np.uint16).reshape(-1, 8)
    bits = _BITS[pieces].sum(axis=1, dtype=np.int64)
    return pieces, (bits >= _PLAIN) & (bits <= 128 - _PLAIN)


def _with_later(photos: PhotoTable, known: Mapping[int, int], compared: int) -> dict[int, int]:
    """Returns near-duplicates of all photos: later photos change none of the first ones'."""
    ids, files = photos.ids.tolist(), photos.column("sha256").tolist()
    pieces, has_detail = _hashes(photos)
    is_original = has_detail & ~np.isin(photos.ids, list(known))
    duplicates = dict(known)
    for row in range(compared, len(ids)):
        first = files.index(files[row])
        if first == row:
            different = _BITS[pieces[:row] ^ pieces[row]].sum(axis=1, dtype=np.uint8)
            near = np.flatnonzero((different <= _DIFFERENT) & is_original[:row])
            if not (has_detail[row] and len(near)):
                continue
            first = int(near[0])
        duplicates[ids[row]] = duplicates.get(ids[first], ids[first])
        is_original[row] = False
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
            for some in chunks(begins, 1 << 20):
                earlier, later = order[some], order[some + distance]
                different = _BITS[pieces[earlier] ^ pieces[later]].sum(axis=1, dtype=np.uint8)
                near = different <= _DIFFERENT
                found.append(np.stack([later[near], earlier[near]], axis=1))
            distance += 1
    return np.unique(np.concatenate(found), axis=0)
