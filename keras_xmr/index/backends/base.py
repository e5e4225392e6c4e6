"""Base class of backends, which store vectors by id, and the exact one."""

from __future__ import annotations

import abc
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import (
    NO_ARRAY,
    checksum,
    remove_stale_temporaries,
    replace_atomically,
    verify,
)
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
            verify(path, sha256)
        except (OSError, ValueError) as error:
            raise DamagedError(path, getattr(error, "strerror", error)) from None
        return path

    def remove_other_files(self, pattern: str, kept: Container[str]) -> None:
        """Removes files of earlier states. Readers keep a mapped file until they close it."""
        for path in self.folder.glob(pattern):
            if path.name not in kept and not path.name.startswith("."):
                path.unlink(missing_ok=True)

    def check_new(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Validates new items."""
        if vectors.shape[1:] != self.shape:
            raise BackendError(
                f"items have the shape {vectors.shape[1:]}, and those of the index {self.shape}"
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


_BLOCK = 1 << 22
"""Numbers per block of vectors: 16 MB of float32."""

_FEW = 2
"""Maximum number of rows of queries for which vectors are streamed, if they exceed the cache."""

_SEGMENTS = 16
"""Maximum number of segments; more are joined."""


@dataclass(frozen=True, eq=False)
class _Segment:
    """Items that were added together.

    Attributes:
        ids: Int64 (items,), ascending.
        vectors: (items, K, D); memory-mapped once it is saved.
        files: The SHA-256 of its files by their names; empty until it is saved.
    """

    ids: np.ndarray
    vectors: np.ndarray
    files: Mapping[str, str] = field(default_factory=dict)


class Exact(Backend):
    """Memory-mapped vectors, and products of matrices block by block, with NumPy alone."""

    NAME = "exact"
    is_exact = True

    def __init__(self, folder: Path, shape: tuple[int, ...]) -> None:
        super().__init__(folder, shape)
        self._segments: list[_Segment] = []
        self._removed = np.empty(0, np.int64)
        self._written = 0

    def restore(self, content: Mapping[str, Any], writing: bool) -> None:
        del writing
        if content.get("precision", "float32") != "float32":
            raise DamagedError(self.folder, "float16 vectors of an earlier version")
        self._segments = [self._read(files) for files in content["segments"]]
        self._removed = np.array(content["removed"], np.int64)
        self._written = content["written"]

    @property
    def ids(self) -> np.ndarray:
        ids = np.concatenate([np.empty(0, np.int64), *(s.ids for s in self._segments)])
        return np.sort(ids[~np.isin(ids, self._removed)])

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        self.check_new(ids, vectors)
        known = np.concatenate([np.empty(0, np.int64), *(s.ids for s in self._segments)])
        if np.isin(ids, known).any():
            raise BackendError("an id of a removed item cannot be reused")
        if len(ids):
            order = np.argsort(ids)
            kept = np.ascontiguousarray(vectors[order], np.float32)
            self._segments.append(_Segment(np.asarray(ids, np.int64)[order], kept))

    def remove(self, ids: np.ndarray) -> None:
        gone = np.intersect1d(ids, self.ids)
        self._removed = np.union1d(self._removed, gone)

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        nothing = np.empty((len(queries), 0))
        nearest = best(nothing.astype(np.int64), nothing.astype(np.float32), k)
        numbers = sum(segment.vectors.size for segment in self._segments)
        streamed = numbers > _BLOCK and queries.shape[0] * queries.shape[1] <= _FEW
        for block_ids, vectors in self._blocks(max(1, _BLOCK // int(np.prod(self.shape)))):
            keep = self._kept(block_ids, allowed)
            if not keep.any():
                continue
            scores = _scores(queries, vectors, streamed)
            if not keep.all():
                scores[:, ~keep] = -np.inf
            nearest = _merge(nearest, block_ids, scores, k)
        return nearest

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if len(self._segments) > _SEGMENTS or len(self._removed) > len(self):
            self._join()
        self._segments = [s if s.files else self._write(s) for s in self._segments]
        segments = [dict(segment.files) for segment in self._segments]
        removed = self._removed.tolist()
        self.write_manifest({"written": self._written, "segments": segments, "removed": removed})
        self.remove_other_files("*.npy", {name for files in segments for name in files})

    def close(self) -> None:
        self._segments = []

    def _kept(self, ids: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        keep = ~np.isin(ids, self._removed) if len(self._removed) else np.ones(len(ids), bool)
        return keep if allowed is None else keep & np.isin(ids, allowed)

    def _blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for segment in self._segments:
            for start in range(0, len(segment.ids), size):
                part = slice(start, start + size)
                yield segment.ids[part], segment.vectors[part]

    def _join(self) -> None:
        """Joins all segments, without removed items."""
        keep = [self._kept(s.ids, None) for s in self._segments]
        pairs = list(zip(self._segments, keep, strict=True))
        ids = np.concatenate([s.ids[k] for s, k in pairs])
        self._segments = [_Segment(ids, np.concatenate([s.vectors[k] for s, k in pairs]))]
        self._removed = self._removed[:0]

    def _write(self, segment: _Segment) -> _Segment:
        self._written += 1
        files: dict[str, str] = {}
        for name, array in (("ids", segment.ids), ("vectors", segment.vectors)):
            file = f"{self._written:06d}.{name}.npy"
            files |= self.write_file(file, partial(np.save, arr=array))
        return self._read(files)

    def _read(self, files: Mapping[str, str]) -> _Segment:
        ids, vectors = (self.check_file(name, sha256) for name, sha256 in files.items())
        try:
            segment = _Segment(np.load(ids), np.asarray(np.load(vectors, mmap_mode="r")), files)
        except NO_ARRAY as error:
            raise DamagedError(vectors, error) from None
        if len(segment.ids) != len(segment.vectors):
            raise DamagedError(vectors, f"{len(segment.vectors)} items for {len(segment.ids)} ids")
        return segment


def _scores(queries: np.ndarray, vectors: np.ndarray, streamed: bool) -> np.ndarray:
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


def _merge(nearest: Neighbours, ids: np.ndarray, scores: np.ndarray, k: int) -> Neighbours:
    """Merges the nearest items of earlier blocks with those of a block."""
    # Most blocks have next to no item that is better than the worst of `nearest`.
    better = np.flatnonzero((scores >= nearest.scores[:, -1:]).any(axis=0))
    ids, scores = ids[better], scores[:, better]
    if scores.shape[1] > k:
        top = np.argpartition(scores, -k, axis=1)[:, -k:]
        scores, ids_of = np.take_along_axis(scores, top, axis=1), ids[top]
    else:
        ids_of = np.broadcast_to(ids, scores.shape)
    return best(
        np.concatenate([nearest.ids, ids_of], axis=1),
        np.concatenate([nearest.scores, scores], axis=1),
        k,
    )
