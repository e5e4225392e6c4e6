"""The file of an index with changes of queries that were learned from relevance feedback."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import NO_ARRAY, locked, replace_atomically
from keras_xmr.index.learning import Change

LEARNED = "learned.npz"

MARKS = "judgements.csv"
"""The file of marks of the page, in the folder of the index."""

_VERSION = 1


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned change of queries, and the model of its embeddings.

    Attributes:
        change: The change of queries.
        fingerprint: The fingerprint of the model.
        marks: Number of marks in training.
    """

    change: Change
    fingerprint: str
    marks: int

    def sentence(self, fingerprint: str, is_calibrated: bool) -> str:
        """A sentence for the notes of a search.

        Args:
            fingerprint: The fingerprint of the model that searches.
            is_calibrated: Whether the number of right photos is estimated.
        """
        marks = "1 mark" if self.marks == 1 else f"{self.marks:,} marks"
        if fingerprint != self.fingerprint:
            return f"What an earlier model learned from {marks} is not used: run `learn` again."
        but = ", but how many are right was calibrated without them" if is_calibrated else ""
        return f"The order has learned from {marks}{but}."

    @classmethod
    def open(cls, folder: Path) -> Learned | None:
        """Reads the file of an index; None if it is missing.

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
        """Writes the file of an index atomically.

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
        with locked(folder), replace_atomically(folder / LEARNED, ".npz") as temporary:
            np.savez(
                temporary,
                queries=change.queries,
                directions=change.directions,
                about=json.dumps(about),
                sha256=_digest(change.queries, change.directions, about),
            )


def forget(folder: Path) -> bool:
    """Removes the file of an index, and returns whether it existed."""
    path = folder / LEARNED
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return was_there


def status(folder: Path) -> tuple[int, int] | None:
    """Size and time of the file, which change with it; None if it is missing."""
    try:
        file = (folder / LEARNED).stat()
    except OSError:
        return None
    return file.st_size, file.st_mtime_ns


def _digest(queries: np.ndarray, directions: np.ndarray, about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for array in (queries, directions):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
