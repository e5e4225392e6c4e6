"""Recall, time, memory and disk of the backends of the search.

Vectors are of a finished run, as its index has them: those of the photos of its records and, where
more are asked for, of points between two neighbours among these, mean and log-variance alike.
Queries are captions of its test split. Without a run, vectors are those of closed-form sampled
distance, made up: Gaussians whose means lie in clusters, and queries near to some of them. Or they
are those of a file that `embed` has written, of which every fifth is a query.

Recall is of the ten best that the backend `exact` finds in float32. Each way of asking has a
process of its own, in which a query is asked alone; times are in milliseconds, those of building in
seconds of processor time, and memory is by how much the process has grown since its imports, with
what it has mapped of files. IVF-PQ is measured alone, and with its 200 best scored again by the
vectors themselves, as a search does it by the matcher. Where the machine is busy, p50 tells more
than p95, and OMP_NUM_THREADS=1 keeps threads from waiting for each other.

    python benchmarks/search.py
    python benchmarks/search.py --run=saved_models/scenes_pcme
    python benchmarks/search.py --sizes=2000 --queries=20
    python benchmarks/search.py --embeddings=embeddings.npz
    python benchmarks/search.py --sizes=1000000 --dimension=64 --backends=exact,faiss_ivf_pq
"""

from __future__ import annotations

import argparse
import json
import mmap
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.tables import table
from keras_xmr.index.augmentations import AUGMENTATIONS, Reference
from keras_xmr.index.backends import BACKENDS, Backend, BackendError, backend_class

K = 10
_RESCORED = 200
_CLUSTERS = 500
_NEAREST = 10

Way = tuple[str, dict[str, Any]]

KINDS: list[tuple[str, dict[str, Any], list[Way]]] = [
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
    ("milvus", {}, [("Milvus Lite, breadth 64", {"breadth": 64})]),
]
"""What is measured: backends, the options that they are built with, and how they are asked."""


def main() -> None:
    """Prints a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="10000,100000", help="numbers of vectors")
    parser.add_argument("--queries", type=int, default=200, help="how many queries")
    parser.add_argument("--dimension", type=int, default=128, help="of made-up embeddings")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="which are measured")
    parser.add_argument("--run", type=Path, help="a finished run")
    parser.add_argument("--embeddings", type=Path, help="an .npz file of `embed`")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        print(json.dumps(asked_here(**json.loads(arguments.ask))))
        return
    names = arguments.backends.split(",")
    if arguments.embeddings:
        with np.load(arguments.embeddings) as arrays:
            found = {n: arrays[n] for n in ("mean", "log_variance")}
        asked = np.arange(len(found["mean"])) % 5 == 0
        embedded = [{n: v[keep] for n, v in found.items()} for keep in (~asked, asked)]
        print_table(gaussian_vectors(embedded[0]), gaussian_vectors(embedded[1], True), names)
        return
    make = made_up if arguments.run is None else Embedded(arguments.run).vectors
    for size in map(int, arguments.sizes.split(",")):
        print_table(*make(size, arguments.queries, arguments.dimension), names)


def made_up(size: int, queries: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (size, 1, D) of a gallery, and of queries that are near to some of it."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(_CLUSTERS, dimension))
    mean = centres[random.integers(0, _CLUSTERS, size)]
    mean = mean + 0.8 * random.normal(size=mean.shape)
    near = mean[random.integers(0, size, queries)]
    near = near + 0.8 * random.normal(size=near.shape)
    spread = random.normal(-3, 0.5, size=(size, 1)) * np.ones(dimension)
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (mean, near)]
    gallery = {"mean": unit[0], "log_variance": spread - np.log(dimension)}
    asked = {"mean": unit[1], "log_variance": np.zeros((queries, dimension))}
    return gaussian_vectors(gallery), gaussian_vectors(asked, query=True)


def gaussian_vectors(embedding: dict[str, np.ndarray], query: bool = False) -> np.ndarray:
    """Vectors of Gaussian embeddings, for closed-form sampled distance."""
    augmentation = AUGMENTATIONS["closed_form_sampled"]
    if query:
        return augmentation.query_vectors(embedding, Reference({}, {}))
    return augmentation.gallery_vectors(embedding)


class Embedded:
    """Embeddings of the photos and captions of a run.

    Args:
        run: Its folder.
    """

    def __init__(self, run: Path) -> None:
        from data_pipelines.records import Records
        from keras_xmr.index.calibration import embed_split_images, embed_texts, join
        from keras_xmr.index.model import RunModel

        self.model = RunModel(run)
        records = Records.open(self.model.config.data.records)
        splits = ("train", "val", "test")
        self.photos = join([embed_split_images(self.model, records, split) for split in splits])
        texts = [caption.text for caption in records.split("test").captions]
        chosen = np.random.default_rng(0).permutation(len(texts))[:1000]
        self.captions = embed_texts(self.model, [texts[i] for i in chosen])

    def vectors(self, size: int, queries: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors (size, 1, D') of photos and what lies between them, and of captions."""
        del dimension
        augmentation = AUGMENTATIONS[self.model.constants["AUGMENTATION"]]
        grown = between(self.photos, size)
        parts = []
        for start in range(0, size, 1024):
            some = {name: values[start : start + 1024] for name, values in grown.items()}
            parts.append(augmentation.gallery_vectors(self.model.prepare(some, "image")))
        asked = {name: values[:queries] for name, values in self.captions.items()}
        known = Reference(self.model.search_constants(), self.photos)
        prepared = self.model.prepare(asked, "caption")
        return np.concatenate(parts), augmentation.query_vectors(prepared, known)


def between(embedding: dict[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Embeddings, and points on the lines between each and one of its nearest, until enough."""
    random = np.random.default_rng(0)
    mean = embedding["mean"].reshape(len(embedding["mean"]), -1)
    unit = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    nearest = np.argsort(-unit @ unit.T, axis=1)[:, 1 : 1 + _NEAREST]
    more = max(0, size - len(mean))
    first = random.integers(0, len(mean), more)
    second = nearest[first, random.integers(0, _NEAREST, more)]
    part = random.random((more, 1), np.float32)
    return {
        name: np.concatenate([v[:size], (1 - part) * v[first] + part * v[second]])
        for name, v in embedding.items()
    }


def print_table(vectors: np.ndarray, queries: np.ndarray, names: list[str]) -> None:
    """Measures backends on some vectors."""
    expected, rows = None, []
    for kind, options, ways in KINDS:
        if kind not in names:
            continue
        folder = Path(tempfile.mkdtemp())
        try:
            seconds = build(kind, options, vectors, folder)
            np.save(folder / "vectors.npy", vectors)
            np.save(folder / "queries.npy", queries)
            for name, values in ways:
                found = asked_apart(folder, kind, values, "rescored" in name)
                expected = found["ids"] if expected is None else expected
                rows.append(row(name, found, expected, seconds, folder / "backend"))
                print(rows[-1], file=sys.stderr, flush=True)
        except BackendError as error:
            print(error)
        finally:
            shutil.rmtree(folder)
    header = ["", "recall@10", "p50", "p95", "queries/s", "build s", "memory MB", "disk MB"]
    print(f"\n{len(vectors):,} vectors of {vectors.shape[2]}\n\n{table(header, rows)}", flush=True)


def build(kind: str, options: dict[str, Any], vectors: np.ndarray, folder: Path) -> float:
    """Saves a backend, and says how many seconds of processor time that took."""
    begin = time.process_time()
    backend = backend_class(kind)(folder / "backend", vectors.shape[1:], **options)
    backend.add(np.arange(len(vectors)), vectors)
    backend.save()
    backend.close()
    return time.process_time() - begin


def asked_apart(folder: Path, kind: str, values: dict[str, Any], rescores: bool) -> dict[str, Any]:
    """What a process finds that opens a backend and asks it: ids, times and memory."""
    told = json.dumps({"folder": str(folder), "kind": kind, "values": values, "rescores": rescores})
    command = [sys.executable, __file__, f"--ask={told}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def asked_here(folder: str, kind: str, values: dict[str, Any], rescores: bool) -> dict[str, Any]:
    """Opens a backend and asks it."""
    opened = backend_class(kind)
    before = resident()
    backend = opened.open(Path(folder) / "backend")
    vars(backend).update(values)
    queries = np.load(Path(folder) / "queries.npy")
    vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="r")
    ask = rescored(backend, vectors) if rescores else plainly(backend)
    found, times = ask_all(ask, queries)
    grown = resident() - before
    backend.close()
    return {"ids": [ids.tolist() for ids in found], "times": times, "memory": grown}


def resident() -> float:
    """Memory of this process in MB, where Linux tells it."""
    told = Path("/proc/self/statm")
    pages = int(told.read_text().split()[1]) if told.exists() else 0
    return pages * mmap.PAGESIZE / 1e6


def plainly(backend: Backend) -> Callable[[np.ndarray], np.ndarray]:
    """A search by a backend alone."""
    return lambda query: backend.search(query, K).ids[0]


def rescored(backend: Backend, vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A search whose best are scored again by the vectors themselves."""

    def ask(query: np.ndarray) -> np.ndarray:
        ids = backend.search(query, _RESCORED).ids[0]
        ids = np.sort(ids[ids >= 0])
        return ids[np.argsort(-(vectors[ids, 0] @ query[0, 0]))[:K]]

    return ask


def ask_all(
    ask: Callable[[np.ndarray], np.ndarray], queries: np.ndarray
) -> tuple[list[np.ndarray], list[float]]:
    """What each query finds, and how long it took in milliseconds."""
    found, times = [], []
    ask(queries[:1])
    for number in range(len(queries)):
        begin = time.perf_counter()
        found.append(ask(queries[number : number + 1]))
        times.append(1e3 * (time.perf_counter() - begin))
    return found, times


def row(
    name: str, found: dict[str, Any], expected: list[list[int]], seconds: float, folder: Path
) -> list[str]:
    """A row of the table."""
    pairs = zip(expected, found["ids"], strict=True)
    recall = np.mean([np.isin(e, f).mean() for e, f in pairs])
    p50, p95 = np.percentile(found["times"], [50, 95])
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    return [
        *(name, f"{recall:.3f}", f"{p50:.2f}", f"{p95:.2f}", f"{1e3 / p50:,.0f}"),
        *(f"{seconds:.1f}", f"{found['memory']:.0f}", f"{disk:.1f}"),
    ]


if __name__ == "__main__":
    main()
