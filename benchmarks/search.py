"""Recall, time and disk of the backends of the search.

Vectors are those of closed-form sampled distance, made up: Gaussians whose means lie in clusters,
and queries near to some of them. Or they are those of a file that `embed` has written, of which
every fifth is a query. Recall is of the ten best that the backend `exact` finds in float32. A query
is asked alone, and times are in milliseconds. IVF-PQ is measured alone, and with its 200 best
scored again by the vectors themselves, as a search does it by the matcher. Where the machine is
busy, p50 tells more than p95, and OMP_NUM_THREADS=1 keeps threads from waiting for each other.

    python benchmarks/search.py
    python benchmarks/search.py --sizes=2000 --queries=20
    python benchmarks/search.py --embeddings=embeddings.npz
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.tables import table
from keras_xmr.index.augmentations import AUGMENTATIONS, Reference
from keras_xmr.index.backends import Backend, BackendError, backend_class

K = 10
_RESCORED = 200
_DIMENSION = 128
_CLUSTERS = 500

KINDS: list[tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = [
    ("exact", {}, [("exact float32", {})]),
    ("exact", {"precision": "float16"}, [("exact float16", {})]),
    (
        "faiss_hnsw",
        {},
        [("HNSW, breadth 64", {"breadth": 64}), ("HNSW, breadth 256", {"breadth": 256})],
    ),
    (
        "faiss_ivf_pq",
        {},
        [("IVF-PQ, 32 cells", {"probed": 32}), ("IVF-PQ, rescored", {"probed": 32})],
    ),
]
"""What is measured: backends, the options that they are built with, and how they are asked."""


def main() -> None:
    """Prints a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="10000,100000", help="numbers of vectors")
    parser.add_argument("--queries", type=int, default=200, help="how many queries")
    parser.add_argument("--embeddings", type=Path, help="an .npz file of `embed`")
    arguments = parser.parse_args()
    if arguments.embeddings:
        with np.load(arguments.embeddings) as arrays:
            found = {n: arrays[n] for n in ("mean", "log_variance")}
        asked = np.arange(len(found["mean"])) % 5 == 0
        embedded = [{n: v[keep] for n, v in found.items()} for keep in (~asked, asked)]
        print_table(*map(gaussian_vectors, embedded))
        return
    for size in map(int, arguments.sizes.split(",")):
        print_table(*made_up(size, arguments.queries))


def made_up(size: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (size, 1, D) of a gallery, and of queries that are near to some of it."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(_CLUSTERS, _DIMENSION))
    mean = centres[random.integers(0, _CLUSTERS, size)]
    mean = mean + 0.8 * random.normal(size=mean.shape)
    near = mean[random.integers(0, size, queries)]
    near = near + 0.8 * random.normal(size=near.shape)
    spread = random.normal(-3, 0.5, size=(size, 1)) * np.ones(_DIMENSION)
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (mean, near)]
    gallery = {"mean": unit[0], "log_variance": spread - np.log(_DIMENSION)}
    asked = {"mean": unit[1], "log_variance": np.zeros((queries, _DIMENSION))}
    return gaussian_vectors(gallery), gaussian_vectors(asked, query=True)


def gaussian_vectors(embedding: dict[str, np.ndarray], query: bool = False) -> np.ndarray:
    """Vectors of Gaussian embeddings, for closed-form sampled distance."""
    augmentation = AUGMENTATIONS["closed_form_sampled"]
    if query:
        return augmentation.query_vectors(embedding, Reference({}, {}))
    return augmentation.gallery_vectors(embedding)


def print_table(vectors: np.ndarray, queries: np.ndarray) -> None:
    """Measures all backends on some vectors."""
    expected, rows = None, []
    for kind, options, ways in KINDS:
        folder = Path(tempfile.mkdtemp())
        try:
            backend, seconds = build(kind, options, vectors, folder)
            for name, values in ways:
                vars(backend).update(values)
                ask = rescored(backend, vectors) if "rescored" in name else plainly(backend)
                found, times = ask_all(ask, queries)
                expected = found if expected is None else expected
                rows.append(row(name, found, expected, times, seconds, folder))
        except BackendError as error:
            print(error)
        finally:
            shutil.rmtree(folder)
    header = ["", "recall@10", "p50", "p95", "queries/s", "build s", "disk MB"]
    print(f"\n{len(vectors):,} vectors of {vectors.shape[2]}\n\n{table(header, rows)}", flush=True)


def build(
    kind: str, options: dict[str, Any], vectors: np.ndarray, folder: Path
) -> tuple[Backend, float]:
    """A backend that was saved and opened again, and how long building took."""
    begin = time.perf_counter()
    backend = backend_class(kind)(folder, vectors.shape[1:], **options)
    backend.add(np.arange(len(vectors)), vectors)
    backend.save()
    seconds = time.perf_counter() - begin
    return backend_class(kind).open(folder), seconds


def plainly(backend: Backend) -> Callable[[np.ndarray], np.ndarray]:
    """A search by a backend alone."""
    return lambda query: backend.search(query, K).ids[0]


def rescored(backend: Backend, vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A search whose best are scored again by the vectors themselves."""

    def ask(query: np.ndarray) -> np.ndarray:
        ids = backend.search(query, _RESCORED).ids[0]
        ids = ids[ids >= 0]
        return ids[np.argsort(-(vectors[ids, 0] @ query[0, 0]))[:K]]

    return ask


def ask_all(
    ask: Callable[[np.ndarray], np.ndarray], queries: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """What each query finds, and how long it took in milliseconds."""
    found, times = [], []
    ask(queries[:1])
    for number in range(len(queries)):
        begin = time.perf_counter()
        found.append(ask(queries[number : number + 1]))
        times.append(1e3 * (time.perf_counter() - begin))
    return found, np.array(times)


def row(
    name: str,
    found: list[np.ndarray],
    expected: list[np.ndarray],
    times: np.ndarray,
    seconds: float,
    folder: Path,
) -> list[str]:
    """A row of the table."""
    recall = np.mean([np.isin(e, f).mean() for e, f in zip(expected, found, strict=True)])
    p50, p95 = np.percentile(times, [50, 95])
    disk = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    speed = 1e3 / times.mean()
    return [
        *(name, f"{recall:.3f}", f"{p50:.2f}", f"{p95:.2f}", f"{speed:,.0f}"),
        *(f"{seconds:.1f}", f"{disk:.1f}"),
    ]


if __name__ == "__main__":
    main()
