"""Versions of an exported model: folders with numbers, of which a server loads the largest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from data_pipelines.files import temporary_path


def versions(folder: Path) -> list[Path]:
    """The versions in a folder, the oldest first."""
    folders = folder.iterdir() if folder.is_dir() else ()
    return sorted((p for p in folders if p.name.isdecimal() and p.is_dir()), key=_number)


def next_version(folder: Path) -> Path:
    """The folder of the next version."""
    numbers = [_number(path) for path in versions(folder)]
    return folder / str(max(numbers, default=0) + 1)


def remove_old_versions(folder: Path, keep: int) -> None:
    """Removes all but the newest versions.

    Args:
        folder: Holds the versions.
        keep: Number of versions that stay.
    """
    for path in versions(folder)[:-keep]:
        # A server sees the version whole or not at all.
        temporary = temporary_path(path)
        os.replace(path, temporary)
        shutil.rmtree(temporary)


def _number(path: Path) -> int:
    return int(path.name)
