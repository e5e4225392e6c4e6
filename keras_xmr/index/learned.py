"""What an index has learned from marks: a file beside its manifest, which may be removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import NO_ARRAY, replace_atomically
from data_pipelines.locks import locked
from keras_xmr.index.learning import Change

LEARNED = "learned.npz"

_VERSION = 1


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from marks, and by which model they were embedded.

    Attributes:
        change: How queries are changed.
        fingerprint: Of the model.
        marks: How many marks it was learned from.
    """

    change: Change
    fingerprint: str
    marks: int

    def sentence(self, is_calibrated: bool) -> str:
        """What to say beside a search.

        Args:
            is_calibrated: Whether it is said how many photos are right.
        """
        marks = "1 mark" if self.marks == 1 else f"{self.marks:,} marks"
        but = ", but how many are right was calibrated without them" if is_calibrated else ""
        return f"The order has learned from {marks}{but}."

    @classmethod
    def open(cls, folder: Path) -> Learned | None:
        """Reads what an index has learned; None if it has learned nothing.

        Args:
            folder: The folder of the index.

        Raises:
            UserError: If the file is damaged, or of another version.
        """
        path = folder / LEARNED
        try:
            with np.load(path, allow_pickle=False) as arrays:
                queries, directions = arrays["queries"], arrays["directions"]
                about = json.loads(str(arrays["about"]))
                is_whole = str(arrays["sha256"]) == _digest(queries, directions, about)
        except FileNotFoundError:
            return None
        except (*NO_ARRAY, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            raise UserError(
                f"{path} is damaged; delete it, and run `learn` again if there are marks"
            )
        if about["version"] != _VERSION:
            raise UserError(f"{path} has version {about['version']}, not {_VERSION}; delete it")
        change = Change(queries, directions, about["sharpness"])
        return cls(change, about["fingerprint"], about["marks"])

    def save(self, folder: Path) -> None:
        """Writes the file of an index, whole or not at all.

        Raises:
            UserError: If another process writes into the folder.
        """
        change = self.change
        about = {
            "version": _VERSION,
            "sharpness": change.sharpness,
            "fingerprint": self.fingerprint,
            "marks": self.marks,
        }
        with locked(folder), replace_atomically(folder / LEARNED, ".npz") as aside:
            np.savez(
                aside,
                queries=change.queries,
                directions=change.directions,
                about=json.dumps(about),
                sha256=_digest(change.queries, change.directions, about),
            )


def forget(folder: Path) -> bool:
    """Removes what an index has learned, and says whether there was anything."""
    path = folder / LEARNED
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return was_there


def status(folder: Path) -> tuple[int, int] | None:
    """What changes when an index learns or forgets."""
    try:
        found = (folder / LEARNED).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _digest(queries: np.ndarray, directions: np.ndarray, about: Mapping[str, Any]) -> str:
    found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for array in (queries, directions):
        found.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()
