"""Approximate search in process with faiss: a graph of neighbours, and compressed vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import faiss
import numpy as np

from data_pipelines.files import NO_ARRAY
from keras_xmr.index.backends.base import (
    Backend,
    DamagedError,
    Neighbours,
    best,
    best_items,
)

_MOST_TRAINING = 100_000
_FEW = 20_000
"""Maximum number of rows after a filter that are scanned, where a graph would lose its way."""


class _Faiss(Backend):
    """Base class of the backends of faiss: rows of items, and files.

    Rows stay in faiss: those of removed items are ignored, and `save` rebuilds the index once they
    are half of all rows.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__(folder, shape, **options)
        self._index: Any = None
        self._ids = np.empty(0, np.int64)
        self._kept = np.empty(0, bool)
        self._written = 0

    def _make(self, vectors: np.ndarray, count: int) -> Any:
        """Makes an empty faiss index for `count` rows, trained on vectors (rows, D) if needed."""
        raise NotImplementedError

    def _parameters(self, selector: Any, wanted: int) -> Any:
        """The parameters of a search for `wanted` rows among those of a selector."""
        raise NotImplementedError

    def restore(self, content: Mapping[str, Any], writing: bool) -> None:
        del writing
        self._written = content["written"]
        for name, sha256 in content["files"].items():
            path = self.check_file(name, sha256)
            try:
                if path.suffix == ".faiss":
                    self._index = faiss.read_index(str(path))
                else:
                    self._ids, kept = np.load(path)
                    self._kept = kept.astype(bool)
            except NO_ARRAY as error:
                # Faiss reports a file that a writer removes in between by a RuntimeError.
                raise DamagedError(path, error) from None

    @property
    def ids(self) -> np.ndarray:
        return np.unique(self._ids[self._kept])

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        self.check_new(ids, vectors)
        if not len(ids):
            return
        order = np.argsort(ids)
        rows = np.ascontiguousarray(vectors[order], np.float32).reshape(-1, self.shape[1])
        if self._index is None:
            self._index = self._make(rows, len(rows))
        self._index.add(rows)
        self._ids = np.concatenate([self._ids, np.repeat(ids[order], self.shape[0])])
        self._kept = np.concatenate([self._kept, np.ones(len(rows), bool)])

    def remove(self, ids: np.ndarray) -> None:
        self._kept &= ~np.isin(self._ids, ids)

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        keep = self._kept if allowed is None else self._kept & np.isin(self._ids, allowed)
        num_queries, rows = queries.shape[:2]
        if not keep.any():
            nothing = np.empty((num_queries, 0), np.int64)
            return best(nothing, np.empty(nothing.shape, np.float32), k)
        if allowed is not None and keep.sum() <= _FEW:
            return self._scan(queries, k, np.flatnonzero(keep))
        wanted = min(k * self.shape[0], int(keep.sum()))
        packed = np.packbits(keep, bitorder="little")
        parameters = self._parameters(faiss.IDSelectorBitmap(packed), wanted)
        flat = np.ascontiguousarray(queries.reshape(num_queries * rows, -1), np.float32)
        scores, places = self._index.search(flat, wanted, params=parameters)
        ids = np.where(places < 0, -1, self._ids[places])
        scores = np.where(places < 0, -np.inf, scores).astype(np.float32)
        # With a row of an item, and of a query, each item occurs once.
        chosen = best if rows == self.shape[0] == 1 else best_items
        return chosen(ids.reshape(num_queries, -1), scores.reshape(num_queries, -1), k)

    def _scan(self, queries: np.ndarray, k: int, places: np.ndarray) -> Neighbours:
        """Scores some rows exhaustively."""
        flat = queries.reshape(-1, queries.shape[-1])
        products = flat @ self._index.reconstruct_batch(places).T
        products = products.reshape(*queries.shape[:2], -1).max(axis=1)
        ids = np.broadcast_to(self._ids[places], products.shape)
        return best_items(ids, products, k)

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if len(self._kept) > 2 * self._kept.sum():
            self._compact()
        self._written += 1
        files: dict[str, str] = {}
        if self._index is not None:
            state = np.stack([self._ids, self._kept])
            files |= self.write_file(
                f"{self._written:06d}.faiss", lambda path: faiss.write_index(self._index, str(path))
            )
            files |= self.write_file(f"{self._written:06d}.npy", lambda path: np.save(path, state))
        self.write_manifest({"files": files, "written": self._written})
        for pattern in ("*.faiss", "*.npy"):
            self.remove_other_files(pattern, files)

    def close(self) -> None:
        self._index = None
        self._ids, self._kept = self._ids[:0], self._kept[:0]

    def _compact(self) -> None:
        """Rebuilds the index from the rows that are kept."""
        ids, kept = self.ids, np.flatnonzero(self._kept)
        places = kept[np.argsort(self._ids[kept], kind="stable")]
        vectors = self._index.reconstruct_batch(places) if len(ids) else None
        self.close()
        if vectors is not None:
            self.add(ids, vectors.reshape(len(ids), *self.shape))


class HNSW(_Faiss):
    """Graph of nearest neighbours, HNSW (Malkov and Yashunin 2018).

    Options:
        neighbours: Number of neighbours of a vector in the graph.
        construction: Number of candidates when a vector is added.
        breadth: Number of candidates in a search, at least the number of results.
    """

    NAME = "faiss_hnsw"
    DEFAULTS: ClassVar = {"neighbours": 32, "construction": 200, "breadth": 128}

    def _make(self, vectors: np.ndarray, count: int) -> Any:
        del vectors, count
        index = faiss.IndexHNSWFlat(
            self.shape[1], self.options["neighbours"], faiss.METRIC_INNER_PRODUCT
        )
        index.hnsw.efConstruction = self.options["construction"]
        return index

    def _parameters(self, selector: Any, wanted: int) -> Any:
        return faiss.SearchParametersHNSW(
            efSearch=max(self.options["breadth"], wanted), sel=selector
        )


class IVFPQ(_Faiss):
    """Vectors in cells, compressed to a few bytes: IVF-PQ (Jegou et al. 2011).

    Scores are those of the compressed vectors: a search requests more than it needs, and scores
    them again.

    Options:
        cells: Number of cells; 0 takes 4 square roots of the number of items of `begin`, or else
            of those that are added first.
        pieces: Number of pieces of a vector, one byte per piece; 0 takes one for 4 numbers.
        probed: Number of cells that a search reads.
    """

    NAME = "faiss_ivf_pq"
    DEFAULTS: ClassVar = {"cells": 0, "pieces": 0, "probed": 32}

    def begin(self, count: int, sample: Callable[[int], np.ndarray]) -> None:
        vectors = sample(min(count, _MOST_TRAINING // self.shape[0]))
        self._index = self._make(vectors.reshape(-1, self.shape[1]), count * self.shape[0])

    def _make(self, vectors: np.ndarray, count: int) -> Any:
        width = self.shape[1]
        # Faiss wants 39 vectors for a cell, and 256 for the 256 values of a byte.
        cells = self.options["cells"] or max(1, min(int(4 * math.sqrt(count)), count // 39))
        bits = min(8, max(1, int(math.log2(max(2, len(vectors) / 39)))))
        pieces = self.options["pieces"] or -(-width // 4)
        padded = -(-width // pieces) * pieces
        described = f"Pad{padded},IVF{cells},PQ{pieces}x{bits}"
        index = faiss.index_factory(width, described, faiss.METRIC_INNER_PRODUCT)
        random = np.random.default_rng(0)
        size = min(len(vectors), _MOST_TRAINING)
        index.train(vectors[np.sort(random.choice(len(vectors), size, replace=False))])
        faiss.extract_index_ivf(index).make_direct_map()
        return index

    def _parameters(self, selector: Any, wanted: int) -> Any:
        inner = faiss.SearchParametersIVF(nprobe=self.options["probed"], sel=selector)
        return faiss.SearchParametersPreTransform(index_params=inner)
