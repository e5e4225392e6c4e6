"""Exact search, which computes every inner product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.files import NO_ARRAY
from keras_xmr.index.backends.base import (
    Backend,
    BackendError,
    DamagedError,
    Neighbours,
    best,
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
        self.check_new(ids, vectors, self.shape)
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
