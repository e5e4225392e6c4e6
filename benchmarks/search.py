"""Recall, time, memory and disk of the backends of the search.

Vectors are those of a finished run, of a file, or made up (`search_vectors.py`); without options
those of the demo, if it was trained.

Recall is of the ten best that the backend `exact` finds in float32. Each way of asking has a
process of its own, in which a query is asked alone. Times are in milliseconds: p50 and p95 as they
were waited for, and as the median of processor time, which other work on the machine lengthens
less. Those of building are in seconds of processor time. Memory is by how much the process has
grown since its imports, with what it has mapped of files. IVF-PQ is measured alone, and with its
best scored again by the vectors themselves, as a search does it by the matcher. NumPy's is what one
writes without any backend: all products, and the ten largest. OMP_NUM_THREADS=1 keeps threads from
waiting for each other.

    python benchmarks/search.py
    python benchmarks/search.py --run=saved_models/scenes_pcme --sizes=10000,100000
    python benchmarks/search.py --sizes=2000 --queries=20
    python benchmarks/search.py --embeddings=embeddings.npz
    python benchmarks/search.py --sizes=1000000 --drawn=200000 --backends=exact,faiss_ivf_pq
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import milvus_server
import numpy as np
from measuring import (
    LEFT_OUT,
    ROOT,
    Elsewhere,
    Row,
    by_memory,
    bytes_a_second,
    compare,
    other_process,
)
from search_vectors import Embedded, Vectors, made_up, of_file

from keras_xmr.search.backends import BACKENDS, Backend, BackendError, backend_class
from keras_xmr.utils.tables import table

K = 10
BREADTHS = (16, 32, 64, 128, 256, 512)
RUN = ROOT / "saved_models/scenes_pcme"


class Way(NamedTuple):
    """A backend with its search options.

    Attributes:
        name: What it is called.
        values: Its search parameters.
        rescored: So many of its best are scored again; 0 for none.
    """

    name: str
    values: dict[str, Any]
    rescored: int = 0


KINDS: list[tuple[str, dict[str, Any], list[Way]]] = [
    ("exact", {}, [Way("exact", {})]),
    (
        "faiss_hnsw",
        {"construction": 100},
        [Way(f"HNSW, breadth {breadth}", {"breadth": breadth}) for breadth in (64, 256, 1024)],
    ),
    (
        "faiss_ivf_pq",
        {},
        [
            Way("IVF-PQ, 32 cells", {"probed": 32}),
            Way("IVF-PQ, 32 cells, 200 rescored", {"probed": 32}, 200),
            Way("IVF-PQ, 128 cells, 1,000 rescored", {"probed": 128}, 1000),
        ],
    ),
    ("milvus", {}, [Way(f"Milvus Lite, breadth {b}", {"breadth": b}) for b in (64, 256)]),
]
"""What is measured: backends, the options that they are built with, and how they are asked."""


@dataclass(frozen=True)
class Measured:
    """A way to search.

    Attributes:
        name: What it is called.
        recall: Of the ten best.
        seconds: How long each query was waited for.
        cpu: The median processor time of a query, in seconds.
        build: Seconds of processor time that building took.
        memory: Bytes that the process has grown by.
        disk: Bytes of all files.
    """

    name: str
    recall: float
    seconds: np.ndarray
    cpu: float
    build: float
    memory: float
    disk: float

    @property
    def p50(self) -> float:
        """The median time of a query, in seconds."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """All but one of 20 take no longer, in seconds."""
        return float(np.percentile(self.seconds, 95))

    def cells(self) -> list[str]:
        """A row of a table."""
        times = (f"{1e3 * t:.2f}" for t in (self.p50, self.p95, self.cpu))
        sizes = (f"{self.memory / 1e6:.0f}", f"{self.disk / 1e6:.1f}")
        return [
            *(self.name, f"{self.recall:.3f}", *times, f"{1 / self.p50:,.0f}"),
            *(f"{self.build:.1f}", *sizes),
        ]


HEADER = ["", "recall@10", "p50 ms", "p95 ms", "CPU ms", "queries/s", "build s", "memory MB"]
HEADER += ["disk MB"]


def main() -> None:
    """Prints a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="10000,100000", help="numbers of vectors")
    parser.add_argument("--queries", type=int, default=200, help="how many queries")
    parser.add_argument("--dimension", type=int, default=128, help="of made-up embeddings")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="which are measured")
    parser.add_argument("--run", type=Path, help="a finished run")
    parser.add_argument("--drawn", type=int, default=100_000, help="how many scenes are drawn")
    parser.add_argument("--embeddings", type=Path, help="an .npz file of `embed`")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        print(json.dumps(asked_here(**json.loads(arguments.ask))))
        return
    names = arguments.backends.split(",")
    if arguments.embeddings:
        print_table(of_file(arguments.embeddings), names)
        return
    sizes = [int(size) for size in arguments.sizes.split(",")]
    run = arguments.run or (RUN if (RUN / "training.json").exists() else None)
    make = vectors_of(run, min(arguments.drawn, max(sizes)), arguments.dimension)
    for size in sizes:
        print_table(make(size, arguments.queries), names)


def vectors_of(run: Path | None, drawn: int, dimension: int) -> Callable[[int, int], Vectors]:
    """The source of vectors and queries: a run, or random numbers without one."""
    if run is None:
        return lambda size, queries: made_up(size, queries, dimension)
    return Embedded(run, drawn).vectors


def rows(smoke: bool = False) -> Iterator[Row]:
    """All backends that are installed, beside the products of all vectors in NumPy."""
    is_real = (RUN / "training.json").exists() and not smoke
    sizes = (300,) if smoke else (10_000, 100_000)
    make = vectors_of(RUN if is_real else None, max(sizes), 8 if smoke else 128)
    for size in sizes:
        vectors, queries = make(size, 3 if smoke else 200)
        kind = "of the demo's model" if is_real else "made up"
        told = f"{size:,} vectors of {vectors.shape[2]}, {kind}"
        # Milvus Lite takes minutes for more.
        names = [name for name in BACKENDS if name != "milvus" or size <= 10_000 or smoke]
        plain = float(np.median(by_numpy(vectors, queries)[0]))
        for found in measured((vectors, queries), ["exact"] if smoke else names, not smoke):
            yield Row(
                f"{found.name}: recall@10 {found.recall:.3f}",
                f"{told}; p95 {1e3 * found.p95:.2f} ms",
                *(found.p50, plain, "all products in NumPy, and the ten largest", found.memory),
                **(by_memory(vectors.nbytes) if found.name == "exact" else {}),
            )

    if not smoke:
        yield from beside_others(make(100_000, 200))
        yield from of_a_server(make(100_000, 200))
        yield _of_a_million()


def beside_others(made: Vectors, breadth: int = 64) -> Iterator[Row]:
    """Exact search and the graph, beside faiss and hnswlib called directly, of the same recall."""
    if not (python := os.environ.get("TORCH_PYTHON")):
        print(f"{LEFT_OUT}set TORCH_PYTHON to one that has faiss and hnswlib", flush=True)
        return
    vectors, queries = made
    size = f"{len(vectors):,} vectors of {vectors.shape[2]}"
    options = {"neighbours": 32, "construction": 100}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.save(folder / "vectors.npy", vectors)
        np.save(folder / "queries.npy", queries)
        numbers = map(str, options.values())
        ask, versions = stack.enter_context(
            other_process(python, "search_others.py", str(folder), *numbers)
        )
        asks = {}
        for kind, chosen in (("exact", {}), ("faiss_hnsw", options)):
            build(kind, chosen, vectors, folder / kind)
            backend = backend_class(kind).open(folder / kind / "backend")
            stack.callback(backend.close)
            backend.options.update({"breadth": breadth} if chosen else {})
            asks[kind] = plainly(backend)
        expected = [asks["exact"](query[None]).tolist() for query in queries]
        reached = recall(expected, [asks["faiss_hnsw"](query[None]) for query in queries])
        works = {"exact": ["faiss"], "faiss_hnsw": []}
        for library in ("faiss", "hnswlib"):
            enough = [
                b for b in BREADTHS if recall(expected, ask(f"{library} {b}").found) >= reached
            ]
            works["faiss_hnsw"].append(f"{library} {min(enough, default=BREADTHS[-1])}")
        for kind, theirs in works.items():
            for work in theirs:
                library, _, kept = work.partition(" ")
                other = Elsewhere(lambda work=work: ask(work))
                row = compare(
                    f"HNSW, breadth {breadth}: recall@10 {reached:.3f}" if kept else "exact",
                    size,
                    lambda kind=kind: [asks[kind](query[None]) for query in queries],
                    other,
                    items=len(queries),
                )
                told = f"breadth {kept}" if kept else "IndexFlatIP"
                version = getattr(versions, library)
                against = (
                    f"{library} {version}, {told}: recall@10 {recall(expected, other.found):.3f}"
                )
                why = (
                    "The graph is that of faiss; around it are ids of photos, a filter of those "
                    "that were removed, and results in order."
                    if kept
                    else "It reads files that are mapped, block by block in one thread of NumPy, "
                    "and merges the best of each block."
                )
                yield replace(row, against=against, at_least=1.0, why=why)


def of_a_server(made: Vectors, breadth: int = 64) -> Iterator[Row]:
    """A server of Milvus as it is deployed, beside the same graph in this process."""
    if not milvus_server.INSTALLED:
        print(f"{LEFT_OUT}pip install milvus==2.3.5 for a server of Milvus", flush=True)
        return
    vectors, queries = made
    size = f"{len(vectors):,} vectors of {vectors.shape[2]}"
    graph = {"neighbours": 32, "construction": 200}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = milvus_server.Server(folder / "server")
        server.start()
        stack.callback(server.kill)
        built, works = {}, {}
        for kind, where in (("milvus", {"uri": server.uri}), ("faiss_hnsw", {})):
            begin = time.perf_counter()
            prepare(kind, graph | where, made, folder / kind)
            if where:
                milvus_server.wait_for_index(server.uri, folder / kind / "backend")
            built[kind] = (time.perf_counter() - begin) / len(vectors)
            values = {"breadth": breadth}
            works[kind] = {"folder": str(folder / kind), "kind": kind, "values": values}
        yield Row("indexed by a server of Milvus, a vector", size, *built.values(), "faiss_hnsw")
        flat = vectors.reshape(-1, vectors.shape[2])
        best = [np.argsort(-(flat @ query[0]))[:K] for query in queries]
        found = [asked_apart(**work, rescored=0) for work in works.values()]
        alone, plain = (float(np.median(each["seconds"])) for each in found)
        told = [f"breadth {breadth}: recall@10 {recall(best, each['ids']):.3f}" for each in found]
        yield Row(f"a server of Milvus, {told[0]}", size, alone, plain, f"faiss_hnsw, {told[1]}")
        with ThreadPoolExecutor() as pool:
            both = list(pool.map(lambda _: asked_apart(**works["milvus"], rescored=0), range(2)))
        seconds = float(np.median([each["seconds"] for each in both]))
        yield Row("the same, two searchers at once", size, seconds, alone, "one")


def _of_a_million() -> Row:
    """Memory and time of the exact search of a million vectors, beside the array alone."""
    made = made_up(1_000_000, 20, 128)
    plain = float(np.median(by_numpy(*made)[0]))
    found = next(measured(made, ["exact"]))
    return Row(
        "exact",
        "1,000,000 vectors of 128, made up",
        *(found.p50, plain, "all products in NumPy, and the ten largest; the array alone"),
        *(found.memory, float(made[0].nbytes)),
        **by_memory(made[0].nbytes),
    )


def print_table(made: Vectors, names: list[str]) -> None:
    """Measures backends on some vectors."""
    vectors, queries = made
    found = []
    for each in measured(made, names):
        found.append(each)
        print("  ".join(each.cells()), file=sys.stderr, flush=True)
    print(f"\n{len(vectors):,} vectors of {vectors.shape[2]}, {len(queries):,} queries\n")
    print(table(HEADER, [each.cells() for each in found]))
    seconds, cpu = by_numpy(vectors, queries)
    print(f"\nNumPy: p50 {1e3 * np.median(seconds):.2f} ms, CPU {1e3 * cpu:.2f} ms")
    copy = bytes_a_second(time.process_time) / 1e9
    for scan in (vectors.nbytes / f.cpu / 1e9 for f in found if f.name == "exact"):
        print(f"exact reads {scan:.1f} GB a second; a copy moves {copy:.1f}")
    sys.stdout.flush()


def measured(made: Vectors, names: list[str], apart: bool = True) -> Iterator[Measured]:
    """Measures backends on some vectors.

    Args:
        made: The vectors and the queries.
        names: Of the backends.
        apart: Whether each way of asking has a process of its own.
    """
    expected = None
    for kind, options, ways in KINDS:
        if kind not in names:
            continue
        folder = Path(tempfile.mkdtemp())
        try:
            seconds = prepare(kind, options, made, folder)
            for way in ways:
                told = {"folder": str(folder), "kind": kind, "values": way.values}
                found = (asked_apart if apart else asked_here)(**told, rescored=way.rescored)
                expected = found["ids"] if expected is None else expected
                yield result(way.name, found, expected, seconds, folder / "backend")
        except BackendError as error:
            print(error, file=sys.stderr)
        finally:
            shutil.rmtree(folder)


def build(kind: str, options: dict[str, Any], vectors: np.ndarray, folder: Path) -> float:
    """Saves a backend, and says how many seconds of processor time that took."""
    begin = time.process_time()
    backend = backend_class(kind)(folder / "backend", vectors.shape[1:], **options)
    backend.add(np.arange(len(vectors)), vectors)
    backend.save()
    backend.close()
    return time.process_time() - begin


def prepare(kind: str, options: dict[str, Any], made: Vectors, folder: Path) -> float:
    """Does `build`, and saves what `asked_here` reads."""
    seconds = build(kind, options, made[0], folder)
    for name, values in zip(("vectors", "queries"), made, strict=True):
        np.save(folder / f"{name}.npy", values)
    return seconds


def recall(expected: list[Any], found: list[Any]) -> float:
    """The mean share of the expected ids that were found."""
    return float(np.mean([np.isin(e, f).mean() for e, f in zip(expected, found, strict=True)]))


def asked_apart(**told: Any) -> dict[str, Any]:
    """The result of `asked_here` in a separate process."""
    command = [sys.executable, __file__, f"--ask={json.dumps(told)}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def asked_here(folder: str, kind: str, values: dict[str, Any], rescored: int) -> dict[str, Any]:
    """Opens a backend and asks it: ids, times and memory."""
    opened = backend_class(kind)
    before = resident()
    backend = opened.open(Path(folder) / "backend")
    backend.options.update(values)
    queries = np.load(Path(folder) / "queries.npy")
    vectors = np.load(Path(folder) / "vectors.npy", mmap_mode="r")
    ask = best_of(backend, vectors, rescored) if rescored else plainly(backend)
    found, seconds, cpu = ask_all(ask, queries)
    grown = resident() - before
    backend.close()
    ids = [each.tolist() for each in found]
    return {"ids": ids, "seconds": seconds, "cpu": cpu, "memory": grown}


def resident() -> int:
    """Memory of this process in bytes, where Linux tells it."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * mmap.PAGESIZE if told.exists() else 0


def plainly(backend: Backend) -> Callable[[np.ndarray], np.ndarray]:
    """A search by a backend alone."""
    return lambda query: backend.search(query, K).ids[0]


def best_of(
    backend: Backend, vectors: np.ndarray, count: int
) -> Callable[[np.ndarray], np.ndarray]:
    """A search whose best are scored again by the vectors themselves."""

    def ask(query: np.ndarray) -> np.ndarray:
        ids = backend.search(query, count).ids[0]
        ids = np.sort(ids[ids >= 0])
        return ids[np.argsort(-(vectors[ids, 0] @ query[0, 0]))[:K]]

    return ask


def ask_all(
    ask: Callable[[np.ndarray], np.ndarray], queries: np.ndarray
) -> tuple[list[np.ndarray], list[float], float]:
    """The results and the time of each query, and the median of the processor time."""
    found, seconds, cpu = [], [], []
    ask(queries[:1])
    for number in range(len(queries)):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        found.append(ask(queries[number : number + 1]))
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    return found, seconds, float(np.median(cpu))


def by_numpy(vectors: np.ndarray, queries: np.ndarray) -> tuple[list[float], float]:
    """The time of queries without a backend, and the median of the processor time."""
    rows = vectors.shape[1]
    flat = vectors.reshape(-1, vectors.shape[2])

    def ask(query: np.ndarray) -> np.ndarray:
        scores = (flat @ query[0].T).max(axis=1).reshape(-1, rows).max(axis=1)
        return np.argpartition(-scores, K)[:K]

    return ask_all(ask, queries[:20])[1:]


def result(
    name: str, found: dict[str, Any], expected: list[list[int]], build: float, folder: Path
) -> Measured:
    """The measurements of a backend."""
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    seconds = np.array(found["seconds"])
    reached = recall(expected, found["ids"])
    return Measured(name, reached, seconds, found["cpu"], build, found["memory"], disk)


if __name__ == "__main__":
    main()
