"""Base class of backends, which store vectors by id, and the exact one."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from keras_xmr.search.manifests import read_manifest, write_manifest, write_numbered
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import NO_ARRAY, remove_stale_temporaries, verify
from keras_xmr.utils.vectors import chunks

_VERSION = 2


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
    this object, and to others after `save`. Vectors of removed items stay until a later `save`.

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
        # The ids of all stored items, in their order, and which of them are not removed.
        self._ids, self._kept = np.empty(0, np.int64), np.empty(0, bool)
        self._counted = self._kept, 0
        self._written = 0

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
        """Reads the files of `store`, by the content of the manifest; see `open`."""

    @property
    def ids(self) -> np.ndarray:
        """The ids of all items, int64 (items,), ascending."""
        return np.sort(self._ids[self._kept])

    def __len__(self) -> int:
        # Counting is as long as a search in a graph.
        if self._counted[0] is not self._kept:
            self._counted = self._kept, int(np.count_nonzero(self._kept))
        return self._counted[1]

    def begin(self, count: int, sample: Callable[[int], np.ndarray]) -> None:
        """Trains on a sample before the first items are added; nothing by default.

        Args:
            count: Number of items that will be added.
            sample: Returns vectors float32 (size, K, D) of a random sample of `size` items.
        """
        del count, sample

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds items.

        Args:
            ids: Int64 (N,), all of them new.
            vectors: Float32 (N, K, D).

        Raises:
            BackendError: If the shape differs from the other items, an id is not new, or
                a number is not finite.
        """
        if vectors.shape[1:] != self.shape:
            raise BackendError(
                f"items have the shape {vectors.shape[1:]}, but the index has items of {self.shape}"
            )
        with np.errstate(over="ignore"):
            vectors = np.asarray(vectors, np.float32)
        if not np.isfinite(vectors).all():
            raise BackendError("a vector has a number that is not finite in float32")
        if len(np.unique(ids)) != len(ids) or np.isin(ids, self._ids).any():
            raise BackendError(
                "duplicate id: every item needs a new id, which no removed item had either"
            )
        if not len(ids):
            return
        ids = np.asarray(ids, np.int64)
        if (ids[1:] < ids[:-1]).any():  # Otherwise the vectors need no copy.
            order = np.argsort(ids)
            ids, vectors = ids[order], vectors[order]
        self.insert(ids, np.ascontiguousarray(vectors))
        self._ids = np.concatenate([self._ids, ids])
        self._kept = np.concatenate([self._kept, np.ones(len(ids), bool)])

    @abc.abstractmethod
    def insert(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Stores the vectors of valid items, with ascending ids, behind all others; see `add`."""

    def remove(self, ids: np.ndarray) -> None:
        """Removes items; unknown ids are ignored."""
        self._kept = self._kept & ~np.isin(self._ids, ids)

    def find_kept(self, allowed: np.ndarray | None) -> np.ndarray:
        """Returns which of all stored items a search may find, bool; see `search`."""
        return self._kept if allowed is None else self._kept & np.isin(self._ids, allowed)

    @abc.abstractmethod
    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        """Returns the items with the largest scores.

        Args:
            queries: Float32 (M, K', D).
            k: Number of items.
            allowed: Ids to search among, int64 ascending; None for all.
        """

    def save(self) -> None:
        """Stores all changes, atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content, files = self.store()
        common = {"backend": self.NAME, "shape": self.shape, "options": self.options}
        write_manifest(self.folder, _VERSION, {**common, **content})
        # Readers keep a mapped file of an earlier state until they close it.
        for path in self.folder.glob("[0-9]*"):
            if path.name not in files:
                path.unlink(missing_ok=True)

    @abc.abstractmethod
    def store(self) -> tuple[dict[str, Any], Container[str]]:
        """Writes files; returns the content of the manifest for `restore`, and their names."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files; unsaved changes are lost."""

    def write_files(self, writers: Mapping[str, Callable[[Path], Any]]) -> dict[str, str]:
        """Writes files under new names, by their ends; returns their checksums by name."""
        self._written += 1
        return write_numbered(self.folder, self._written, writers)

    def check_file(self, name: str, sha256: str) -> Path:
        """Returns the path of a file that has its checksum.

        Raises:
            DamagedError: If it is missing, or has another.
        """
        path = self.folder / name
        try:
            verify(path, sha256)
        except (OSError, ValueError) as error:
            raise DamagedError(path, getattr(error, "strerror", error)) from None
        return path


def no_neighbours(queries: np.ndarray, k: int) -> Neighbours:
    """Returns the result without any item."""
    shape = len(queries), k
    return Neighbours(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))


def best(ids: np.ndarray, scores: np.ndarray, k: int) -> Neighbours:
    """Returns the k best candidates of each query, the best first; of equal scores the smallest id.

    Args:
        ids: Int64 (M, candidates), -1 for none.
        scores: Float32 (M, candidates), -inf for none.
        k: Number of results.
    """
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    nearest, columns = no_neighbours(ids, k), slice(order.shape[1])
    best_ids, best_scores = (np.take_along_axis(a, order, axis=1) for a in (ids, scores))
    nearest.ids[:, columns] = np.where(np.isneginf(best_scores), -1, best_ids)
    nearest.scores[:, columns] = best_scores
    return nearest


def best_items(ids: np.ndarray, scores: np.ndarray, k: int) -> Neighbours:
    """Returns the k best items of rows, several of which may belong to one item; see `best`."""
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


_BLOCK = 1 << 22
"""Numbers per block of vectors: 16 MB of float32."""

_SLACK = 1024
"""Number of candidates of a query, beyond twice the results, before the worst are left out."""

_FEW = 2
"""Maximum number of rows of queries for which vectors are streamed, if they exceed the cache."""


class Exact(Backend):
    """Memory-mapped vectors, and products of matrices block by block, with NumPy alone.

    Vectors that are added are parts of their own until they are written behind the mapped ones, so
    that the others are never copied in memory.
    """

    NAME = "exact"
    is_exact = True

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__(folder, shape, **options)
        self._parts: list[np.ndarray] = []

    def restore(self, content: Mapping[str, Any], writing: bool) -> None:
        del writing
        self._written = content["written"]
        ids, vectors = (self.check_file(*file) for file in content["files"].items())
        try:
            self._ids, stored = np.load(ids), np.load(vectors, mmap_mode="r")
        except NO_ARRAY as error:
            raise DamagedError(vectors, error) from None
        if len(self._ids) != len(stored):
            raise DamagedError(vectors, f"{len(stored)} items for {len(self._ids)} ids")
        self._parts = [np.asarray(stored)]
        self._kept = np.ones(len(self._ids), bool)

    def insert(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        del ids
        if len(self._parts) > 1 and self._parts[-1].size + vectors.size <= _BLOCK:
            self._parts[-1] = np.concatenate([self._parts[-1], vectors])
        else:
            self._parts.append(vectors.copy())

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        is_kept = self.find_kept(allowed)
        is_all = is_kept is self._kept and len(self) == len(self._ids)
        best_of = [Best(k) for _ in queries]
        numbers = len(self._ids) * math.prod(self.shape)
        streamed = numbers > _BLOCK and queries.shape[0] * queries.shape[1] <= _FEW
        size, begin = max(1, _BLOCK // math.prod(self.shape)), 0
        for vectors in (some for part in self._parts for some in chunks(part, size)):
            block = slice(begin, begin := begin + len(vectors))
            if not (is_all or is_kept[block].any()):
                continue
            kept = None if is_all else is_kept[block]
            scores = inner_products(queries, vectors, streamed)
            for found, row in zip(best_of, scores, strict=True):
                found.add(self._ids[block], row, kept)
        return collect(best_of, k)

    def store(self) -> tuple[dict[str, Any], Container[str]]:
        if not self._kept.all():
            begins = np.cumsum([0, *map(len, self._parts)])
            self._parts = [
                block[self._kept[begin : begin + len(block)]]
                for begin, block in zip(begins, self._parts, strict=False)
            ]
            self._ids = self._ids[self._kept]
            self._kept = np.ones(len(self._ids), bool)
        files = self.write_files(
            {"ids.npy": partial(np.save, arr=self._ids), "vectors.npy": self._write_vectors}
        )
        return {"written": self._written, "files": files}, files

    def _write_vectors(self, path: Path) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(self._ids), *self.shape)}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for part in self._parts:
                part.astype("<f4", copy=False).tofile(file)

    def close(self) -> None:
        self._parts = []


def inner_products(queries: np.ndarray, vectors: np.ndarray, streamed: bool = False) -> np.ndarray:
    """Computes the largest inner products (M, N) of queries (M, K', D) and items (N, K, D)."""
    (num_queries, query_rows, width), (items, rows, _) = queries.shape, vectors.shape
    flat_queries, flat_vectors = queries.reshape(-1, width), vectors.reshape(-1, width)
    if streamed:
        # Reads the vectors once per query, at twice the rate of the BLAS of NumPy.
        products = np.stack([np.einsum("nd,d->n", flat_vectors, row) for row in flat_queries])
    else:
        products = flat_queries @ flat_vectors.T
    if query_rows == rows == 1:
        return products
    return products.reshape(num_queries, query_rows, items, rows).max(axis=(1, 3))


class Best:
    """The items of one query with the largest scores, of all that were added.

    Most items of a large index are worse than the k best before them, and are left out at once.

    Args:
        k: Number of items.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._ids: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._size, self._least = 0, np.float32(-np.inf)

    def add(self, ids: np.ndarray, scores: np.ndarray, kept: np.ndarray | None = None) -> None:
        """Adds items.

        Args:
            ids: Int64 (N,).
            scores: Float32 (N,).
            kept: Which of them may be found, bool (N,); None for all.
        """
        places = np.flatnonzero(scores >= self._least)
        if kept is not None:
            places = places[kept[places]]
        self._ids.append(ids[places])
        self._scores.append(scores[places])
        self._size += len(places)
        if self._size > 2 * self._k + _SLACK:
            self._shrink()

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and scores of at most k items, the best first; see `best`."""
        self._shrink()
        ids, scores = np.concatenate(self._ids), np.concatenate(self._scores)
        order = np.lexsort((ids, -scores))[: self._k]
        return ids[order], scores[order]

    def _shrink(self) -> None:
        """Leaves out items that are worse than the k best."""
        ids = np.concatenate([np.empty(0, np.int64), *self._ids])
        scores = np.concatenate([np.empty(0, np.float32), *self._scores])
        if len(scores) > self._k:
            self._least = np.partition(scores, -self._k)[-self._k]
            better = scores >= self._least
            ids, scores = ids[better], scores[better]
        if len(scores) > 2 * self._k + _SLACK:  # Many are equal.
            order = np.lexsort((ids, -scores))[: self._k]
            ids, scores = ids[order], scores[order]
        self._ids, self._scores, self._size = [ids], [scores], len(ids)


def collect(best_of: Sequence[Best], k: int) -> Neighbours:
    """Returns the k best items of each query, of which there may be fewer."""
    ids = np.full((len(best_of), k), -1, np.int64)
    scores = np.full(ids.shape, -np.inf, np.float32)
    for row, found in enumerate(best_of):
        some_ids, some_scores = found.sorted()
        ids[row, : len(some_ids)], scores[row, : len(some_ids)] = some_ids, some_scores
    return Neighbours(ids, scores)
