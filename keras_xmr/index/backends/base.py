"""Base class of backends, which store vectors by id and find the largest inner products."""

from __future__ import annotations

import abc
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import checksum, remove_stale_temporaries, replace_atomically
from keras_xmr.index.manifests import read_manifest, write_manifest

_VERSION = 1


class BackendError(UserError):
    """Error in reading or storing vectors; the message has the remedy."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Nearest items of queries, the best first.

    Attributes:
        ids: Int64 (queries, k); -1 after the last item.
        scores: Inner products float32 (queries, k); -inf after the last item.
    """

    ids: np.ndarray
    scores: np.ndarray


class Backend(abc.ABC):
    """Vectors by id, and a search for the largest inner products.

    An item is K rows of D numbers, and a query K' rows; the score of both is the largest of their
    K K' inner products. Most have one row. Changes apply at once to
    this object, and to others after `save`.

    A subclass sets `NAME`, and `DEFAULTS` with the names and defaults of its options.

    Args:
        folder: The folder of its files.
        shape: K rows of D numbers of an item.
        **options: Options of the subclass.

    Attributes:
        is_exact: Whether a search never misses an item.
    """

    NAME: ClassVar[str]
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    is_exact: ClassVar[bool] = False

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        if unknown := sorted(options.keys() - self.DEFAULTS.keys()):
            known = ", ".join(self.DEFAULTS) or "none"
            raise BackendError(f"{self.NAME} has no option {unknown[0]!r}; its options: {known}")
        self.folder, self.shape = folder, tuple(shape)
        self.options: dict[str, Any] = {**self.DEFAULTS, **options}

    @classmethod
    def open(cls, folder: Path, writing: bool = False) -> Self:
        """Opens the backend that was saved in a folder.

        Args:
            folder: The folder.
            writing: Whether items will be added; several readers may be open at the same time as
                one writer.

        Raises:
            BackendError: If files are missing or damaged: they are compared with their
                checksums.
        """
        if writing:
            remove_stale_temporaries(folder, alone=True)
        content = read_manifest(folder, _VERSION, "shape")
        if content.get("backend", cls.NAME) != cls.NAME:
            raise BackendError(f"{folder} was made by the backend {content['backend']}")
        backend = cls(folder, tuple(content["shape"]), **content.get("options", {}))
        try:
            backend.restore(content, writing)
        except BackendError:
            backend.close()
            # A writer may have replaced files in the meantime.
            if read_manifest(folder, _VERSION, "shape") == content:
                raise
            return cls.open(folder, writing)
        return backend

    @abc.abstractmethod
    def restore(self, content: Mapping[str, Any], writing: bool) -> None:
        """Reads what `save` stored, by the content of the manifest; see `open`."""

    @property
    @abc.abstractmethod
    def ids(self) -> np.ndarray:
        """The ids of all items, int64 (items,), ascending."""

    @abc.abstractmethod
    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds items.

        Args:
            ids: Int64 (N,), all of them new.
            vectors: Float32 (N, K, D).

        Raises:
            BackendError: If the shape differs from that of the other items, an id is not new, or
                a number is not finite.
        """

    def begin(self, count: int, sample: Callable[[int], np.ndarray]) -> None:
        """Trains on a sample before the first items are added; nothing by default.

        Args:
            count: Number of items that will be added.
            sample: Returns vectors float32 (size, K, D) of a random sample of `size` items.
        """
        del count, sample

    @abc.abstractmethod
    def remove(self, ids: np.ndarray) -> None:
        """Removes items; unknown ids are ignored."""

    @abc.abstractmethod
    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        """The items with the largest scores.

        Args:
            queries: Float32 (M, K', D).
            k: Number of items.
            allowed: Ids to search among, int64 ascending; None for all.
        """

    @abc.abstractmethod
    def save(self) -> None:
        """Stores all changes, atomically."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files; unsaved changes are lost."""

    def __len__(self) -> int:
        return len(self.ids)

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Writes the manifest: backend, shape, options, and the content for `restore`."""
        common = {"backend": self.NAME, "shape": self.shape, "options": self.options}
        write_manifest(self.folder, _VERSION, {**common, **content})

    def write_file(self, name: str, write: Callable[[Path], None]) -> dict[str, str]:
        """Writes a file atomically, and returns its checksum by its name."""
        with replace_atomically(self.folder / name, Path(name).suffix) as temporary:
            write(temporary)
        return {name: checksum(self.folder / name)}

    def check_file(self, name: str, sha256: str) -> Path:
        """The path of a file that has its checksum.

        Raises:
            DamagedError: If it is missing, or has another.
        """
        path = self.folder / name
        try:
            if checksum(path) == sha256:
                return path
        except OSError as error:
            raise DamagedError(path, error.strerror) from None
        raise DamagedError(path, "it does not have its checksum")

    def remove_other_files(self, pattern: str, kept: Container[str]) -> None:
        """Removes files of earlier states. Readers keep a mapped file until they close it."""
        for path in self.folder.glob(pattern):
            if path.name not in kept and not path.name.startswith("."):
                path.unlink(missing_ok=True)

    def check_new(self, ids: np.ndarray, vectors: np.ndarray, shape: tuple[int, ...]) -> None:
        """Validates new items; `shape` is (K, D) of the others."""
        if vectors.shape[1:] != shape:
            raise BackendError(
                f"items have the shape {vectors.shape[1:]}, and those of the index {shape}"
            )
        if not np.isfinite(vectors).all():
            raise BackendError("a vector has a number that is not finite")
        if len(np.unique(ids)) != len(ids) or np.isin(ids, self.ids).any():
            raise BackendError("an id is not new: every item needs an id of its own")


def best(ids: np.ndarray, scores: np.ndarray, k: int) -> Neighbours:
    """The k best of some candidates of each query, the best first; of equal scores the smallest id.

    Args:
        ids: Int64 (M, candidates), -1 for none.
        scores: Float32 (M, candidates), -inf for none.
        k: Number of results.
    """
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    best_ids = np.take_along_axis(ids, order, axis=1)
    best_scores = np.take_along_axis(scores, order, axis=1)
    best_ids = np.where(np.isneginf(best_scores), -1, best_ids)
    if order.shape[1] == k:
        return Neighbours(best_ids, best_scores)
    missing = ((0, 0), (0, k - order.shape[1]))
    return Neighbours(
        np.pad(best_ids, missing, constant_values=-1),
        np.pad(best_scores, missing, constant_values=-np.inf),
    )


def best_items(ids: np.ndarray, scores: np.ndarray, k: int) -> Neighbours:
    """The k best items of rows, several of which may belong to one item; see `best`."""
    order = np.lexsort((ids, -scores), axis=1)
    ids, scores = (np.take_along_axis(a, order, axis=1) for a in (ids, scores))
    for row, its_scores in zip(ids, scores, strict=True):
        first = np.zeros(len(row), bool)
        first[np.unique(row, return_index=True)[1]] = True
        its_scores[~first] = -np.inf
    return best(ids, scores, k)


class DamagedError(BackendError):
    """Error of a missing or damaged file of vectors.

    Args:
        path: The file.
        reason: The defect.
    """

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{path} is missing or damaged ({reason}); run `index` again to rebuild it"
        )
