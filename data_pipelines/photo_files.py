"""Files of photos: suffixes, folders, reading. Imports the standard library alone."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

RAW_SUFFIXES = frozenset(
    {
        *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".iiq", ".kdc", ".mrw", ".nef"),
        *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".srw", ".x3f"),
    }
)
"""Suffixes of camera RAW files, in lower case."""

PHOTO_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        *(".avif", ".heic", ".heif", ".jxl"),
        *RAW_SUFFIXES,
    }
)
"""Suffixes of photos, in lower case. RAW files are included to report that they are not
supported."""


class UnreadableError(Exception):
    """An item of a data set cannot be used; the message names it and the reason."""


def visible_files(
    root: Path, failed: Callable[[OSError], None] | None = None, without: Path | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Yields each folder below a root, with the names of its files, in the order of their names.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        root: The folder, which is the first.
        failed: Called with the error of a folder that cannot be read.
        without: A folder to skip.
    """
    for folder, folders, names in os.walk(root, onerror=failed):
        folders[:] = sorted(
            name for name in folders if name[0] != "." and Path(folder, name) != without
        )
        yield Path(folder), sorted(name for name in names if name[0] != ".")


def inside(root: Path, name: str) -> Path:
    """Returns the path of `name` below `root`.

    Raises:
        UnreadableError: If the path is outside of `root` or invalid.
    """
    path = root / name
    try:
        is_inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # A loop of links; NUL in the name.
        raise UnreadableError(f"{name!r} is not the name of a file: {error}") from None
    if not is_inside:
        raise UnreadableError(f"{name!r} points outside of {root}; copy the file there")
    return path


def check_file(path: Path) -> Path:
    """Returns the path of a file or folder; rejects pipes and devices, which might never end.

    Raises:
        OSError: If it is a pipe or device, or does not exist.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path


def file_bytes(path: Path) -> bytes:
    """Reads a file that passes `check_file`.

    Raises:
        OSError: If it cannot be read.
    """
    return check_file(path).read_bytes()


def content_digest(content: bytes) -> int:
    """Returns a digest of an image file, or of features: 64 bits."""
    return int.from_bytes(hashlib.sha256(content).digest()[:8])
