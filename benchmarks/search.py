"""Recall, time, memory and disk of the backends of the search.

The vectors are random: Gaussians for closed-form sampled distance, whose means lie in clusters, and
queries near to some of them. Recall is the share of the ten best, as `exact` finds them. Queries
come one by one. The baseline in NumPy computes all products and takes the ten largest.

usage: OMP_NUM_THREADS=1 python benchmarks/search.py [SIZE ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import LEFT_OUT, Peak, Row, by_memory, compare, show

from keras_xmr.search.augmentations import AUGMENTATIONS, Reference
from keras_xmr.search.backends import Backend, BackendError, backend_class

K, CLUSTERS, CANDIDATES = 10, 500, 2000
GRAPH = {"construction": 100, "neighbours": 32}
KINDS: tuple[tuple[str, dict[str, Any], str, tuple[dict[str, int], ...]], ...] = (
    ("exact", {}, "exact", ({},)),
    ("faiss_hnsw", GRAPH, "HNSW, breadth {breadth}", ({"breadth": 64}, {"breadth": 256})),
    ("faiss_ivf_pq", {}, "IVF-PQ, {probed} cells", ({"probed": 32}, {"probed": 128})),
    ("milvus", {}, "Milvus Lite, breadth {breadth}", ({"breadth": 64},)),
)
"""Backends, the options that they are built with, a title, and the options of a search."""

Vectors = tuple[np.ndarray, np.ndarray]
"""Vectors float32 (N, 1, D) of a gallery, and (M, 1, D) of queries."""


def made_up(size: int, queries: int, dimension: int) -> Vectors:
    """Vectors (size, 1, D + 1) of closed-form sampled distance, and of queries near to some."""
    random = np.random.default_rng(0)
    mean = random.normal(size=(CLUSTERS, dimension))[random.integers(0, CLUSTERS, size)]
    mean = mean + 0.8 * random.normal(size=mean.shape)
    near = mean[random.integers(0, size, queries)]
    near = near + 0.8 * random.normal(size=near.shape)
    spread = random.normal(-3, 0.5, size=(size, 1)) * np.ones(dimension)
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (mean, near)]
    gallery = {"mean": unit[0], "log_variance": spread - np.log(dimension)}
    asked = {"mean": unit[1], "log_variance": np.zeros((queries, dimension))}
    augmentation = AUGMENTATIONS["closed_form_sampled"]
    return (
        augmentation.gallery_vectors(gallery),
        augmentation.query_vectors(asked, Reference({}, {})),
    )


def rows(smoke: bool = False, sizes: tuple[int, ...] = (10_000, 100_000)) -> Iterator[Row]:
    """All backends that are installed, beside the products of all vectors in NumPy."""
    for size in (300,) if smoke else sizes:
        vectors, queries = made_up(size, 3 if smoke else 200, 8 if smoke else 128)
        told = f"{size:,} vectors of {vectors.shape[2]}, made up"
        plain = _timed(lambda query, v=vectors[:, 0]: by_numpy(v, query), queries)[1]
        expected: list[np.ndarray] = []
        for kind, options, title, ways in KINDS:
            if kind == "milvus" and (smoke or size > 10_000):  # It takes minutes for more.
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    backend, seconds, peak = opened(kind, options, vectors, Path(folder))
                except BackendError as error:
                    print(f"{LEFT_OUT}{kind}, {error}", flush=True)
                    continue
                disk = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
                yield Row(f"{kind}, built", f"{told}; {disk / 1e6:.1f} MB of files", seconds)
                for way in ways:
                    backend.options.update(way)
                    found, times = _timed(lambda q, b=backend: b.search(q, K).ids[0], queries)
                    expected = expected or found
                    yield Row(
                        f"{title.format(**way)}: recall@10 {recall(expected, found):.3f}",
                        f"{told}; p95 {1e3 * np.percentile(times, 95):.2f} ms",
                        float(np.median(times)),
                        float(np.median(plain)),
                        "all products in NumPy, and the ten largest",
                        memory=peak,
                        **(by_memory(vectors.nbytes) if kind == "exact" else {}),
                    )
                if kind == "faiss_hnsw":
                    yield beside_faiss(backend, vectors, queries, told)
                backend.close()
    with tempfile.TemporaryDirectory() as name:
        yield beside_product(300 if smoke else 1_000_000, 128, Path(name) / "exact")


def opened(
    kind: str, options: dict[str, Any], vectors: np.ndarray, folder: Path
) -> tuple[Backend, float, float]:
    """Builds a backend and opens it.

    Returns:
        The backend, the seconds of processor time of building it, and the bytes that opening and a
        first search added.
    """
    begin = time.process_time()
    made = backend_class(kind)(folder / "backend", vectors.shape[1:], **options)
    made.add(np.arange(len(vectors)), vectors)
    made.save()
    made.close()
    seconds = time.process_time() - begin
    with Peak() as peak:
        backend = backend_class(kind).open(folder / "backend")
        backend.search(vectors[:1], K)
    return backend, seconds, peak.bytes


def beside_faiss(backend: Backend, vectors: np.ndarray, queries: np.ndarray, size: str) -> Row:
    """The graph, beside the graph of faiss, called directly with the same options."""
    import faiss

    graph = faiss.IndexHNSWFlat(vectors.shape[2], GRAPH["neighbours"], faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = GRAPH["construction"]
    graph.add(np.ascontiguousarray(vectors[:, 0]))
    graph.hnsw.efSearch = 64
    backend.options.update({"breadth": 64})
    row = compare(
        "HNSW, breadth 64",
        size,
        lambda: [backend.search(query[None], K) for query in queries],
        lambda: [graph.search(query, K) for query in queries],
        f"faiss {faiss.__version__}, breadth 64",
        items=len(queries),
    )
    why = "The graph is made by faiss; around it are ids of photos, and a look for ties."
    return replace(row, at_least=1 / 1.1, why=why)


def beside_product(size: int, dimension: int, folder: Path) -> Row:
    """The exact search, for as many candidates as a search of photos takes, beside one product."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((size, 1, dimension), np.float32)
    queries = random.standard_normal((4, 1, 1, dimension), np.float32)
    made = backend_class("exact")(folder, vectors.shape[1:])
    made.add(np.arange(size), vectors)
    made.save()
    backend = backend_class("exact").open(folder)
    row = compare(
        f"exact, the best {CANDIDATES:,}",
        f"{size:,} vectors of {dimension}, made up",
        lambda: [backend.search(query, CANDIDATES) for query in queries],
        lambda: [vectors[:, 0] @ query[0, 0] for query in queries],
        "the product in NumPy alone, without the choice of the best",
        items=len(queries),
        **by_memory(vectors.nbytes),
    )
    backend.close()
    return replace(row, at_least=1 / 1.5)


def by_numpy(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The ten best of a query (1, 1, D) without a backend."""
    return np.argpartition(-(vectors @ query[0, 0]), K)[:K]


def recall(expected: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The mean share of the expected ids that were found."""
    return float(np.mean([np.isin(e, f).mean() for e, f in zip(expected, found, strict=True)]))


def _timed(
    ask: Callable[[np.ndarray], np.ndarray], queries: np.ndarray
) -> tuple[list[np.ndarray], list[float]]:
    """The results and the seconds of each query, asked alone."""
    found, times = [], []
    ask(queries[:1])
    for number in range(len(queries)):
        begin = time.perf_counter()
        found.append(ask(queries[number : number + 1]))
        times.append(time.perf_counter() - begin)
    return found, times


if __name__ == "__main__":
    show(rows(sizes=tuple(map(int, sys.argv[1:])) or (10_000, 100_000)))
