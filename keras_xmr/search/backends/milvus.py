"""Search by Milvus: by Milvus Lite in this process, or by a server that many machines share.

Milvus stores rows at once, without transactions. So every row has the number of the `save` that it
waits for, and a manifest has the number of saves and the removed items. It is written after new
rows are inserted, and before old ones are deleted. Rows of a later save are ignored, and the next
writer deletes them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import Counter
from collections.abc import Container, Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from pymilvus import DataType, MilvusClient, MilvusException

from keras_xmr.search.backends.base import (
    Backend,
    BackendError,
    Neighbours,
    best_items,
    no_neighbours,
)
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.vectors import chunks

_MOST = 16_384
"""Maximum number of rows of a query of Milvus."""

_AT_ONCE = 4000
"""Maximum number of rows of an insertion or a filter."""

_LOADS, _PAUSE = 5, 0.1
"""Maximum number of attempts to load a collection, and the first pause in seconds."""

_BOUND = 10.0
"""Seconds after which a search of "Bounded" consistency sees a change: the server has 5."""

_OPEN: Counter[str] = Counter()
_OPENING = Lock()

for _name in ("pymilvus", "milvus_lite", "grpc._server"):
    # Errors are raised as well, and Milvus Lite lacks functions that pymilvus tries.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class Milvus(Backend):
    """Graph of neighbours, HNSW (Malkov and Yashunin 2018), in a collection of Milvus.

    Milvus Lite lets one process at a time open a folder. A server has no such limit; its token, if
    it needs one, is read from the environment variable MILVUS_TOKEN.

    Options:
        uri: Address of a server, such as http://localhost:19530; empty for Milvus Lite.
        neighbours: Number of neighbours of a vector in the graph.
        construction: Number of candidates when a vector is added.
        breadth: Number of candidates in a search, at least the number of results.
    """

    NAME = "milvus"
    DEFAULTS: ClassVar = {"uri": "", "neighbours": 32, "construction": 200, "breadth": 128}

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__(folder, shape, **options)
        self._name = f"photos_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"
        self._client: Any = None
        self._changed = 0.0
        self._is_flushed = True

    def restore(self, content: Mapping[str, Any], writing: bool) -> None:
        self._written, self._name = content["saves"], content["name"]
        self._connect()
        self._read(np.array(content["removed"], np.int64), content["items"], writing)

    def insert(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        self._connect()
        save, rows = self._written + 1, list(vectors.reshape(-1, self.shape[1]))
        for batch in chunks(list(zip(self._keys(ids).tolist(), rows, strict=True)), _AT_ONCE):
            entities = [{"id": key, "save": save, "vector": row} for key, row in batch]
            self._client.insert(self._name, entities)
        self._changed, self._is_flushed = time.monotonic(), False

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Neighbours:
        items = self._ids[self.find_kept(allowed)]
        if not len(items):
            return no_neighbours(queries, k)
        # Without a filter, Milvus has few other items.
        requests = [(items, "")]
        if allowed is not None:
            requests = [(some, self._filter(some)) for some in chunks(items, _AT_ONCE)]
        results = [self._search(queries, k, *some) for some in requests]
        ids, scores = (np.concatenate(arrays, axis=1) for arrays in zip(*results, strict=True))
        return best_items(ids, scores, k)

    def _search(
        self, queries: np.ndarray, k: int, items: np.ndarray, condition: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and scores (M, rows) of items.

        Args:
            queries: As in `search`.
            k: Number of items.
            items: Ids of the items.
            condition: A filter for them; empty for all rows.
        """
        rows = self.shape[0]
        limit = min(_MOST, max(1, min(k, len(items)) * rows))
        while True:
            ids, scores = self._hits(queries, limit, condition)
            scores[~np.isin(ids, items)] = -np.inf
            counts = [len(np.unique(i[s > -np.inf])) for i, s in zip(ids, scores, strict=True)]
            missing = min(counts) < min(k, len(items))
            # Rows of the same item, of newer items or of removed ones may rank before it.
            if limit == _MOST or not missing or (ids < 0).any():
                return ids, scores
            limit = min(_MOST, 4 * limit)

    def _hits(
        self, queries: np.ndarray, limit: int, condition: str
    ) -> tuple[np.ndarray, np.ndarray]:
        num_queries = len(queries)
        breadth = max(self.options["breadth"], limit)
        recent = time.monotonic() - self._changed < _BOUND
        results = self._client.search(
            self._name,
            data=list(np.ascontiguousarray(queries.reshape(-1, self.shape[1]), np.float32)),
            filter=condition,
            limit=limit,
            search_params={"metric_type": "IP", "params": {"ef": breadth}},
            # A server waits 0.2 s and more for a search that must see the newest change.
            consistency_level="Strong" if recent else "Bounded",
        )
        ids = np.full((len(results), limit), -1, np.int64)
        scores = np.full((len(results), limit), -np.inf, np.float32)
        for row, hits in enumerate(results):
            ids[row, : len(hits)] = [hit["id"] // self.shape[0] for hit in hits]
            scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return ids.reshape(num_queries, -1), scores.reshape(num_queries, -1)

    def store(self) -> tuple[dict[str, Any], Container[str]]:
        self._connect()
        if not self._is_flushed:
            self._client.flush(self._name)
            if not self.options["uri"]:
                # Milvus Lite adds new rows to the graph when a collection is loaded.
                self._client.release_collection(self._name)
                self._load()
            self._is_flushed = True
        self._written += 1
        removed = self._ids[~self._kept].tolist()
        content = {"name": self._name, "items": len(self), "saves": self._written}
        return {**content, "removed": removed}, ()

    def save(self) -> None:
        super().save()
        self._delete(self._ids[~self._kept])
        self._changed = time.monotonic()
        self._ids, self._kept = self._ids[self._kept], self._kept[self._kept]

    def _load(self) -> None:
        """Loads the collection; retries while Milvus Lite is writing a graph."""
        for attempt in range(1, _LOADS + 1):
            try:
                self._client.load_collection(self._name)
                return
            except MilvusException:
                if attempt == _LOADS:
                    raise
                time.sleep(_PAUSE * attempt)

    def close(self) -> None:
        if self._client is None:
            return
        self._client.close()
        self._client = None
        with _OPENING:
            _OPEN[self._place] -= 1
            if not self.options["uri"] and not _OPEN[self._place]:
                from milvus_lite import server_manager_instance

                server_manager_instance.release_server(self._place)

    @property
    def _place(self) -> str:
        return self.options["uri"] or str((self.folder / "milvus.db").resolve())

    def _connect(self) -> None:
        """Opens the collection, and creates it if it is missing."""
        if self._client is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # Another process may have changed it just now.
        self._changed = time.monotonic()
        if not self.options["uri"] and find_spec("milvus_lite") is None:
            raise BackendError(
                "the backend milvus without a server needs Milvus Lite: "
                f"{install_command('milvus')}"
            )
        try:
            with _OPENING:
                self._client = MilvusClient(self._place, token=os.environ.get("MILVUS_TOKEN", ""))
                _OPEN[self._place] += 1
            if not self._client.has_collection(self._name):
                self._create()
            self._load()
        except MilvusException as error:
            why = str(error.message)
            if not self.options["uri"]:
                why = (
                    "Milvus Lite lets one process at a time open a folder. End other processes, or "
                    "use a server of Milvus, or the backend exact or faiss_hnsw"
                )
            raise BackendError(f"{self._place} cannot be opened: {why}") from None

    def _create(self) -> None:
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("save", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.shape[1])
        index = MilvusClient.prepare_index_params()
        made = {"M": self.options["neighbours"], "efConstruction": self.options["construction"]}
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=made)
        self._client.create_collection(self._name, schema=schema, index_params=index)

    def _read(self, removed: np.ndarray, items: int, writing: bool) -> None:
        """Reads the stored items, and completes the changes of a killed writer."""
        iterator = self._client.query_iterator(
            self._name, filter="id >= 0", output_fields=["id", "save"], batch_size=_AT_ONCE
        )
        rows = []
        while batch := iterator.next():
            rows += [(row["id"] // self.shape[0], row["save"]) for row in batch]
        iterator.close()
        stored = np.array(rows, np.int64).reshape(-1, 2)
        saved = stored[:, 1] <= self._written
        self._ids = np.setdiff1d(stored[saved, 0], removed)
        self._kept = np.ones(len(self._ids), bool)
        if len(self._ids) != items:
            raise BackendError(
                f"{self._place} has {len(self._ids):,} items, not {items:,}: it is damaged; "
                "delete the index and build it again"
            )
        if writing:
            self._delete(np.union1d(stored[~saved, 0], np.intersect1d(stored[:, 0], removed)))

    def _delete(self, items: np.ndarray) -> None:
        for some in chunks(items, _AT_ONCE):
            self._client.delete(self._name, filter=self._filter(some))

    def _keys(self, items: np.ndarray) -> np.ndarray:
        """Returns the keys of the rows of items, one item after another."""
        return (items[:, None] * self.shape[0] + np.arange(self.shape[0])).reshape(-1)

    def _filter(self, items: np.ndarray) -> str:
        return f"id in {self._keys(items).tolist()}"
