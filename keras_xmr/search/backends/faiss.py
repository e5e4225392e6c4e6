"""Approximate search in process with faiss: a graph of neighbours, and compressed vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, ClassVar

import faiss
import numpy as np

from keras_xmr.search.backends.base import (
    Backend,
    DamagedError,
    Neighbours,
    best,
    best_items,
    inner_products,
    no_neighbours,
)
from keras_xmr.utils.files import NO_ARRAY

_MOST_TRAINING = 100_000
_FEW = 20_000
"""Maximum number of rows after a filter that are scanned, where a graph would lose its way."""


class _Faiss(Backend):
    """Base class of the backends of faiss: rows of items, and files.

    Rows stay in faiss: rows of removed items are ignored, and `save` rebuilds the index once they
    are half of all rows.
    """

    _index: Any = None
    _packed: tuple[np.ndarray, Any] | None = None

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__(folder, shape, **options)
        # For searches without a filter: making them takes a tenth of a search.
        self._plain: dict[tuple[int, ...], Any] = {}

    def _make(self, vectors: np.ndarray, count: int) -> Any:
        """Makes an empty faiss index for `count` rows, trained on vectors (rows, D) if needed."""
        raise NotImplementedError

    def _parameters(self, selector: Any, wanted: int) -> Any:
        """Returns the parameters of a search for `wanted` rows that a selector selects."""
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
                    # The file has a column per row of an item.
                    self._ids, kept = np.load(path)[:, :: self.shape[0]]
                    self._kept = kept.astype(bool)
            except NO_ARRAY as error:
                # Faiss reports a file that a writer removes in between by a RuntimeError.
                raise DamagedError(path, error) from None

    def insert(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        del ids
        rows = vectors.reshape(-1, self.shape[1])
        if self._index is None:
            self._index = self._make(rows, len(rows))
        self._index.add(rows)

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        is_kept, rows = self.find_kept(allowed), self.shape[0]
        count = (len(self) if allowed is None else int(is_kept.sum())) * rows
        if not count:
            return no_neighbours(queries, k)
        if allowed is not None and count <= _FEW:
            scores = inner_products(queries, self._vectors(is_kept))
            return best(np.broadcast_to(self._ids[is_kept], scores.shape), scores, k)
        wanted = min(k * rows, count)
        selector = self._selector(is_kept)
        key = (wanted, *self.options.values())
        if selector is not None:
            parameters = self._parameters(selector, wanted)
        elif (parameters := self._plain.get(key)) is None:
            parameters = self._plain[key] = self._parameters(None, wanted)
        flat = np.ascontiguousarray(queries.reshape(-1, self.shape[1]), np.float32)
        scores, places = self._index.search(flat, wanted, params=parameters)
        is_one = queries.shape[1] == rows == 1
        if is_one and wanted == k and _is_full(places) and _is_strict(scores):
            return Neighbours(self._ids[places], scores)
        ids = np.where(places < 0, -1, self._ids[places // rows])
        scores = np.where(places < 0, -np.inf, scores).astype(np.float32)
        # With a row of an item, and of a query, each item occurs once.
        chosen = best if is_one else best_items
        return chosen(ids.reshape(len(queries), -1), scores.reshape(len(queries), -1), k)

    def _selector(self, is_kept: np.ndarray) -> Any:
        """Returns the selector of the rows of some items; None for all, which is faster."""
        if len(self) == len(self._ids) and is_kept is self._kept:
            return None
        known = self._packed
        if known is None or known[0] is not is_kept:
            packed = np.packbits(self._rows(is_kept), bitorder="little")
            known = is_kept, faiss.IDSelectorBitmap(packed)
            if is_kept is self._kept:
                self._packed = known
        return known[1]

    def _rows(self, is_kept: np.ndarray) -> np.ndarray:
        """Returns the rows of some items, as bool."""
        # A copy of 100,000 numbers would take as long as a search.
        return is_kept if self.shape[0] == 1 else np.repeat(is_kept, self.shape[0])

    def _vectors(self, is_kept: np.ndarray) -> np.ndarray:
        """Returns the vectors (N, K, D) of some items, by bool."""
        places = np.flatnonzero(self._rows(is_kept))
        vectors: np.ndarray = self._index.reconstruct_batch(places)
        return vectors.reshape(-1, *self.shape)

    def store(self) -> tuple[dict[str, Any], Container[str]]:
        if len(self._ids) > 2 * len(self):
            self._compact()
        files: dict[str, str] = {}
        if self._index is not None:
            state = np.repeat([self._ids, self._kept], self.shape[0], axis=1)
            files = self.write_files(
                {
                    "faiss": lambda path: faiss.write_index(self._index, str(path)),
                    "npy": lambda path: np.save(path, state),
                }
            )
        return {"files": files, "written": self._written}, files

    def close(self) -> None:
        self._index = None
        self._ids, self._kept = self._ids[:0], self._kept[:0]
        self._packed = None

    def _compact(self) -> None:
        """Rebuilds the index from the items that are kept."""
        ids, vectors = self._ids[self._kept], self._vectors(self._kept)
        self.close()
        self.add(ids, vectors)


def _is_full(places: np.ndarray) -> bool:
    """Returns whether faiss found as many rows as were wanted, for each query."""
    return min(places[:, -1].tolist(), default=0) >= 0


def _is_strict(scores: np.ndarray) -> bool:
    """Returns whether scores of faiss, the best first, have no ties, which are to be in order
    of ids.
    """
    # `all` of a small array takes several times as long as counting.
    return np.count_nonzero(scores[:, 1:] < scores[:, :-1]) == scores.size - len(scores)


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

    Compressed vectors are scored: a search requests more than it needs, and scores
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
        # "np": a search uses no polysemous codes, whose training would take most of the time.
        described = f"Pad{padded},IVF{cells},PQ{pieces}x{bits}np"
        index = faiss.index_factory(width, described, faiss.METRIC_INNER_PRODUCT)
        random = np.random.default_rng(0)
        size = min(len(vectors), _MOST_TRAINING)
        chosen = vectors[np.sort(random.choice(len(vectors), size, replace=False))]
        # The two values of a bit take two vectors.
        index.train(chosen if size > 1 else np.repeat(chosen, 2, axis=0))
        faiss.extract_index_ivf(index).make_direct_map()
        return index

    def _parameters(self, selector: Any, wanted: int) -> Any:
        inner = faiss.SearchParametersIVF(nprobe=self.options["probed"], sel=selector)
        return faiss.SearchParametersPreTransform(index_params=inner)
