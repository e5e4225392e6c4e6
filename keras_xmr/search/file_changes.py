"""Compares the photos of an index with the files of a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from keras_xmr.search.photo_table import FileState, Photo, PhotoTable
from keras_xmr.utils.files import checksum


@dataclass(frozen=True)
class FileChanges:
    """The photos of an index of which a file is there, and all other files.

    Attributes:
        kept: The rows of photos with a file of the same content.
        moved: Photos among them with another path or another state of the file, as they are now,
            by row.
        others: The states of all other files, by path.
    """

    kept: set[int]
    moved: dict[int, Photo]
    others: dict[str, FileState]


def compare_files(
    photos: PhotoTable, root: Path, files: Mapping[str, FileState], trusts_states: bool
) -> FileChanges:
    """Compares files with photos by path and state and, if these differ, by content.

    Args:
        photos: The photos.
        root: The folder of the files.
        files: The states of the files, by path.
        trusts_states: Whether a file with the path and the state of a photo has its content.
    """
    kept, others = set[int](), dict(files)
    if trusts_states:
        states = photos.states()
        for row, path in enumerate(photos.paths):
            if others.get(path) == states[row]:
                kept.add(row)
                del others[path]
    moved = _find_contents(photos, root, kept, others)
    return FileChanges(kept | moved.keys(), moved, others)


def _find_contents(
    photos: PhotoTable, root: Path, kept: set[int], others: dict[str, FileState]
) -> dict[int, Photo]:
    """Removes files with the content of a photo, perhaps at another path, from `others`."""
    moved: dict[int, Photo] = {}
    if not others:
        return moved
    free: dict[str, dict[str, tuple[int, Photo]]] = defaultdict(dict)
    for row in [row for row in range(len(photos)) if row not in kept]:
        photo = photos[row]
        free[photo.sha256][photo.path] = row, photo
    sizes = {photo.bytes for same in free.values() for _, photo in same.values()}
    for path, state in list(others.items()):
        if state[0] not in sizes or not (same := free.get(_checksum(root / path), {})):
            continue
        row, photo = same.pop(path if path in same else next(iter(same)))
        moved[row] = replace(photo, path=path, modified=state[1], changed=state[2])
        del others[path]
    return moved


def _checksum(path: Path) -> str:
    """Returns the SHA-256 of a file; empty if it cannot be read."""
    try:
        return checksum(path) if path.is_file() else ""
    except OSError:
        return ""
