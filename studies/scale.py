"""How time, memory and disk grow with the number of photos, captions and items of a batch.

A measurement is a process of its own. It prints what it needed, and a line of the table is written
at once: what has a line is not measured again. From the lines a power law is fitted per part, and
what 100 million photos and a billion pairs take is computed by it.

    python studies/scale.py                           # what is missing, then the fits
    python studies/scale.py --only=hnsw,exact --most=100000
    python studies/scale.py --most=0                  # the fits alone

Ray is an extra of its own (`keras-xmr[ray]`), as are faiss and Milvus. A size is not measured if
smaller ones say that the free memory is too small.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

TABLE = ROOT / "docs" / "tables" / "scale.csv"
WIDTH, K = 128, 10
CANDIDATES = 2000
"""Vectors that a search asks for; their photos are scored again, without compression."""


@dataclass(frozen=True)
class Line:
    """One measurement.

    Attributes:
        part: What was measured, such as `hnsw`.
        size: Number of vectors, photos, captions, or items of a batch.
        what: The step, such as `query`.
        seconds: Of wall time, which other work on the machine prolongs.
        processor: Seconds of processor time of all threads.
        memory: Additional bytes of memory at the peak.
        disk: Bytes of files.
        value: A number of the step, such as the recall; NaN for none.
    """

    part: str
    size: int
    what: str
    seconds: float
    processor: float = float("nan")
    memory: float = float("nan")
    disk: float = float("nan")
    value: float = float("nan")


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _available() -> int:
    """Bytes of memory that a process can have without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds of processor time, of a step."""
    begin, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - processor


def _median(works: Iterable[Callable[[], Any]]) -> tuple[float, float]:
    times = np.array([_timed(work) for work in works])
    return float(np.median(times[:, 0])), float(np.median(times[:, 1]))


# Vectors.

_BACKENDS = {
    "exact": ("exact", {}),
    "hnsw": ("faiss_hnsw", {"construction": 100, "breadth": 64}),
    "ivf_pq": ("faiss_ivf_pq", {}),
    "milvus": ("milvus", {}),
}


_BLOCK = 1 << 16
"""Vectors that are drawn and added at a time, as an index adds them."""


def _blocks(size: int) -> Iterator[np.ndarray]:
    """Unit vectors float32 (N, 1, D) in 500 clusters, block by block, always the same."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((500, WIDTH), np.float32)
    for begin in range(0, size, _BLOCK):
        count = min(_BLOCK, size - begin)
        vectors = random.standard_normal((count, 1, WIDTH), np.float32)
        vectors *= 0.8
        vectors += centres[random.integers(0, 500, count)][:, None]
        yield vectors / np.linalg.norm(vectors, axis=2, keepdims=True)


def _queries() -> np.ndarray:
    """20 queries (20, 1, D), near to some of the first vectors."""
    random = np.random.default_rng(1)
    near = next(_blocks(_BLOCK))[random.integers(0, 10_000, 20)]
    return near + 0.05 * random.standard_normal(near.shape, np.float32)


def _nearest(size: int, queries: np.ndarray) -> np.ndarray:
    """The ids of the ten best vectors of each query, by all products."""
    scores, ids = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    for number, block in enumerate(_blocks(size)):
        new = number * _BLOCK + np.arange(len(block))
        scores = np.hstack([scores, queries[:, 0] @ block[:, 0].T])
        ids = np.hstack([ids, np.broadcast_to(new, (len(queries), len(block)))])
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        scores, ids = (np.take_along_axis(each, best, axis=1) for each in (scores, ids))
    return ids


def _measure_vectors(part: str, size: int) -> list[Line]:
    from keras_xmr.search.backends import backend_class

    kind, options = _BACKENDS[part]
    queries = _queries()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "vectors"
        made = backend_class(kind)(folder, (1, WIDTH), **options)
        before = _resident()

        def sample(count: int) -> np.ndarray:
            # All blocks have the same distribution.
            return np.concatenate(list(_blocks(count)))

        times = [_timed(lambda: made.begin(size, sample))]
        for number, block in enumerate(_blocks(size)):
            ids = number * _BLOCK + np.arange(len(block))
            times.append(_timed(lambda ids=ids, block=block: made.add(ids, block)))
        times.append(_timed(made.save))
        disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        took = np.sum(times, axis=0).tolist()
        lines = [Line(part, size, "build", *took, _peak() - before, disk)]
        made.close()
        before, opened = _resident(), list[Any]()
        took = _timed(lambda: opened.append(backend_class(kind).open(folder, writing=True)))
        (backend,) = opened
        found = backend.search(queries, K).ids
        lines.append(Line(part, size, "open", *took, _resident() - before))
        took = _median([lambda q=q: backend.search(q[None], K) for q in queries])
        right = _nearest(size, queries)
        recall = np.mean([np.isin(r, f).mean() for r, f in zip(right, found, strict=True)])
        lines.append(Line(part, size, "query", *took, value=float(recall)))
        took = _median([lambda q=q: backend.search(q[None], CANDIDATES) for q in queries])
        many = backend.search(queries, CANDIDATES).ids
        recall = np.mean([np.isin(r, m).mean() for r, m in zip(right, many, strict=True)])
        lines.append(Line(part, size, "candidates", *took, value=float(recall)))
        more = np.arange(size, size + 1000)
        some = next(_blocks(1000))
        took = _timed(lambda: (backend.add(more, some), backend.save()))
        lines.append(Line(part, size, "add 1,000", *took))
        took = _timed(lambda: (backend.remove(more), backend.save()))
        lines.append(Line(part, size, "delete 1,000", *took))
        backend.close()
    return lines


# Descriptions of photos.


def _measure_descriptions(part: str, size: int) -> list[Line]:
    """The photos of an index: written and read whole, and near-duplicates among them."""
    from keras_xmr.search.descriptions import near_duplicates
    from keras_xmr.search.photo_table import Photo, PhotoTable
    from keras_xmr.utils.vectors import chunks

    random = np.random.default_rng(0)

    def described(n: int) -> Photo:
        return Photo(
            id=n,
            path=f"2021/summer holidays/IMG_{n:08d}.jpg",
            bytes=3_000_000 + n,
            modified=1_600_000_000_000_000_000 + n,
            changed=1_600_000_000_000_000_000 + n,
            sha256=f"{n:064x}",
            taken="2021-06-30T12:00:00",
            width=4000,
            height=3000,
            hash=random.bytes(16).hex(),
        )

    table = PhotoTable.of(())
    for numbers in chunks(range(size), _BLOCK):
        table = table.extended(map(described, numbers))
    with tempfile.TemporaryDirectory() as name:
        files = Path(name) / "photos.npy", Path(name) / "paths.txt"
        took = _timed(lambda: (table.write_rows(files[0]), table.write_paths(files[1])))
        disk = sum(path.stat().st_size for path in files)
        lines = [Line(part, size, "write", *took, disk=disk)]
        before, found = _resident(), list[PhotoTable]()
        took = _timed(lambda: (found.append(PhotoTable.read(*files)), found[0].ids, found[0][0]))
        lines.append(Line(part, size, "read", *took, _resident() - before))
    took = _timed(lambda: near_duplicates(found[0]))
    return [*lines, Line(part, size, "near-duplicates", *took)]


# Evaluation.


def _measure_evaluation(part: str, size: int) -> list[Line]:
    """All ranks of both directions of captions, of which an image has five, tile by tile."""
    from keras_xmr import matchers
    from keras_xmr.experiments.evaluation.scoring import score_tiles
    from keras_xmr.judgements import Judgements
    from keras_xmr.metrics import retrieval

    random = np.random.default_rng(0)
    images = random.standard_normal((size // 5, WIDTH), np.float32)
    owner = np.repeat(np.arange(size // 5), 5)
    captions = images[owner] + 2 * random.standard_normal((size, WIDTH), np.float32)
    scores = score_tiles(matchers.Cosine(), {"mean": images}, {"mean": captions}, (2048, 8192))
    few = score_tiles(matchers.Cosine(), {"mean": images[:9]}, {"mean": captions[:45]}, (9, 45))
    retrieval(few, Judgements.from_pairs(owner[:45], 9))  # Traces.
    before = _resident()
    found: dict[str, float] = {}
    took = _timed(
        lambda: found.update(retrieval(scores, Judgements.from_pairs(owner, len(images))))
    )
    return [Line(part, size, "ranks", *took, _peak() - before, value=found["rsum"])]


# Losses.

_LOSSES = {
    "triplet": "Triplet",
    "info_nce": "InfoNCE",
    "smooth_ap": "SmoothAP",
    "probabilistic": "ProbabilisticMatching",
}


def _measure_loss(part: str, size: int) -> list[Line]:
    """A loss and its gradient, of a batch of embeddings."""
    import tensorflow as tf

    from keras_xmr import losses

    objective = getattr(losses, _LOSSES[part])()

    def embeddings(items: int) -> list[dict[str, Any]]:
        random = np.random.default_rng(0)
        return [
            {
                "mean": tf.constant(random.standard_normal((items, WIDTH), np.float32)),
                "log_variance": tf.fill((items, WIDTH), -3.0),
            }
            for _ in range(2)
        ]

    @tf.function(autograph=False)
    def step(image: Any, caption: Any, ids: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([image, caption])
            value = objective(image, caption, ids)
        return value, tape.gradient(value, [image["mean"], caption["mean"]])

    def run(items: int) -> None:
        value, _ = step(*embeddings(items), tf.range(items))
        value.numpy()

    run(16)
    before = _resident()
    run(size)  # Traces it.
    took = _timed(lambda: run(size))
    return [Line(part, size, "step", *took, _peak() - before)]


def _measure_caching(part: str, size: int) -> list[Line]:
    """A training step of a small convolutional tower and InfoNCE, whole or in chunks of 128."""
    import keras
    import tensorflow as tf

    from keras_xmr import losses, matchers
    from keras_xmr.model.retriever import Retriever

    keras.utils.set_random_seed(0)
    image = keras.Input((64, 64, 3))
    x = image
    for channels in (16, 32, 64):
        x = keras.layers.Conv2D(channels, 3, strides=2, padding="same", activation="gelu")(x)
        x = keras.layers.Conv2D(channels, 3, padding="same", activation="gelu")(x)
    x = keras.layers.Dense(WIDTH)(keras.layers.GlobalAveragePooling2D()(x))
    caption = keras.Input((WIDTH,))
    model = Retriever(
        keras.Model(image, x),
        keras.Model(caption, keras.layers.Dense(WIDTH)(caption)),
        matchers.Cosine(),
        losses.InfoNCE(),
        gradient_caching=128 if part == "cached_step" else None,
    )
    model.compile(optimizer=keras.optimizers.SGD(0.01))

    def data(items: int) -> Any:
        random = np.random.default_rng(0)
        pixels = random.random((items, 64, 64, 3), np.float32)
        words = random.random((items, WIDTH), np.float32)
        x = {"image": pixels, "caption": words}
        return tf.data.Dataset.from_tensors((x, np.arange(items)))

    model.fit(data(128), verbose=0)
    batch = data(size)
    before = _resident()
    took = _timed(lambda: model.fit(batch, verbose=0))
    return [Line(part, size, "step", *took, _peak() - before)]


# Workers.

_PHOTOS, _SLICE = 400, 20


def _measure_workers(part: str, size: int) -> list[Line]:
    """Photos of 640 x 480 pixels, embedded by workers of Ray with a core each, as far as it goes.

    The embedder is the demo's, without training, and each worker loads it once. A worker is asked
    for a slice of the photos at a time, as soon as it is free.
    """
    import ray
    from PIL import Image
    from start import untrained_run

    from keras_xmr.experiments.export.run_embedder import run_embedder
    from keras_xmr.search.embedder import Embedder
    from keras_xmr.search.photo_embedding import PhotoEmbedder
    from keras_xmr.search.photo_table import find_photos
    from keras_xmr.utils.progress import Progress

    cores = sorted(os.sched_getaffinity(0))

    class Worker:
        def __init__(self, number: int, root: Path, embedder: Path) -> None:
            os.sched_setaffinity(0, {cores[number % len(cores)]})
            self._embedder = PhotoEmbedder(root, Embedder.open(embedder))

        def embed(self, files: Any) -> float:
            """Returns the seconds of processor time."""
            begin = time.process_time()
            self._embedder.embed(files, Progress("", len(files), "photos"))
            return time.process_time() - begin

    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        root = (Path(name) / "photos").resolve()
        root.mkdir()
        for number in range(_PHOTOS):
            small = random.integers(0, 256, (12, 16, 3)).astype(np.uint8)
            Image.fromarray(small).resize((640, 480), 3).save(root / f"{number:04d}.jpg")
        run_embedder(untrained_run(Path(name))).install(Path(name) / "embedder")
        files = list(find_photos(root))
        slices = [files[begin : begin + _SLICE] for begin in range(0, len(files), _SLICE)]
        ray.init(num_cpus=size, include_dashboard=False, object_store_memory=10**8)
        try:
            actor = ray.remote(Worker)
            workers = [actor.remote(n, root, Path(name) / "embedder") for n in range(size)]
            ray.get([worker.embed.remote(slices[0]) for worker in workers])
            pool, times = ray.util.ActorPool(workers), list[float]()
            took = _timed(
                lambda: times.extend(
                    pool.map_unordered(lambda worker, some: worker.embed.remote(some), slices)
                )
            )
        finally:
            ray.shutdown()
    return [Line(part, size, "embed", took[0], sum(times), value=_PHOTOS / took[0])]


_WORKERS = "ray"
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_BATCHES = (128, 512, 2048, 8192, 32_768)

PARTS: dict[str, tuple[Callable[[str, int], list[Line]], Sequence[int]]] = {
    "exact": (_measure_vectors, _SIZES),
    "hnsw": (_measure_vectors, (*_SIZES[:-1], 3_000_000, _SIZES[-1])),
    "ivf_pq": (_measure_vectors, _SIZES),
    "milvus": (_measure_vectors, _SIZES[:2]),
    "descriptions": (_measure_descriptions, _SIZES[:-1]),
    "evaluation": (_measure_evaluation, (10_000, 30_000, 100_000, 500_000)),
    **dict.fromkeys(_LOSSES, (_measure_loss, _BATCHES)),
    "whole_step": (_measure_caching, _BATCHES[:-1]),
    "cached_step": (_measure_caching, _BATCHES[:-1]),
    _WORKERS: (_measure_workers, (1, 2, 4)),
}


def read(path: Path = TABLE) -> list[Line]:
    """The lines of the table; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Line(row["part"], int(row["size"]), row["what"], *map(float, list(row.values())[3:]))
            for row in csv.DictReader(file)
        ]


def write(lines: Iterable[Line], path: Path = TABLE) -> None:
    """Writes the table, in the order of the parts."""
    order = list(PARTS)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Line)])
        for line in sorted(lines, key=lambda line: (order.index(line.part), line.size)):
            numbers = [f"{value:.4g}" for value in astuple(line)[3:]]
            writer.writerow([line.part, line.size, line.what, *numbers])


def power(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Factor and exponent of the power law that fits best, by least squares of the logarithms."""
    exponent, constant = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(np.exp(constant)), float(exponent)


def fits(lines: Iterable[Line]) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Factor and exponent of each part, step and quantity with at least two sizes.

    The two largest sizes alone count: small ones are of fixed costs. Workers do the same work.
    """
    found = {}
    for part in (part for part in PARTS if part != _WORKERS):
        for what in dict.fromkeys(line.what for line in lines if line.part == part):
            matching = sorted(
                (line for line in lines if (line.part, line.what) == (part, what)),
                key=lambda line: line.size,
            )[-2:]
            for name in ("processor", "memory", "disk"):
                values = [getattr(line, name) for line in matching]
                if len(matching) == 2 and all(value > 0 for value in values):
                    found[part, what, name] = power([line.size for line in matching], values)
    return found


def project(fit: tuple[float, float], size: float) -> float:
    """The value of a power law."""
    return fit[0] * size ** fit[1]


def largest(fit: tuple[float, float], value: float) -> float:
    """The size at which a power law has a value."""
    return float((value / fit[0]) ** (1 / fit[1]))


def report(lines: Sequence[Line]) -> str:
    """The fits, what 100 million and a billion items take, and the largest batch of 80 GB."""
    text = [f"{'part':<14}{'step':<17}{'quantity':<11}exponent     100 million     a billion"]
    for (part, what, name), fit in fits(lines).items():
        title = f"{part:<14}{what:<17}{name:<11}{fit[1]:8.2f}"
        if what == "step":
            if name == "memory":
                text.append(f"{title}   80 GB at {largest(fit, 80e9):,.0f} items")
            continue
        unit, scale = ("s", 1.0) if name == "processor" else ("GB", 1e-9)
        values = [f"{scale * project(fit, n):,.4g} {unit}" for n in (1e8, 1e9)]
        text.append(f"{title}{values[0]:>16}{values[1]:>14}")
    return "\n".join(text)


def measure(part: str, size: int) -> list[Line]:
    """Measures in another process.

    Raises:
        RuntimeError: If it fails, as without memory.
    """
    command = [sys.executable, __file__, "--measure", part, str(size)]
    # Threads of faiss that wait would count as work.
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"it ended by {done.returncode}"])[-1]
        raise RuntimeError(why)
    return [Line(**fields) for fields in json.loads(done.stdout.splitlines()[-1])]


def _too_large(lines: Sequence[Line], part: str, size: int) -> str:
    """Why a size is not measured: the memory that smaller ones predict for it; or nothing."""
    found = fits([line for line in lines if line.part == part])
    needed = max(
        (project(f, size) for (_, _, name), f in found.items() if name == "memory"), default=0.0
    )
    free = _available()
    if needed < free:
        return ""
    return f"it would take {needed / 1e9:,.0f} GB of memory, and {free / 1e9:,.0f} are free"


def main() -> None:
    """Measures what is missing, and prints the fits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--most", type=int, default=10**9, help="largest size")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        part, size = options.measure
        lines = PARTS[part][0](part, int(size))
        print(json.dumps([asdict(line) for line in lines]))
        return
    lines = read()
    for part in options.only.split(","):
        for size in (size for size in PARTS[part][1] if size <= options.most):
            if any((line.part, line.size) == (part, size) for line in lines):
                continue
            if why := _too_large(lines, part, size):
                print(f"{part}, {size:,}: {why}", flush=True)
                break
            try:
                lines += measure(part, size)
            except RuntimeError as error:
                print(f"{part}, {size:,}: {error}", flush=True)
                break
            write(lines)
            new = (line for line in lines if (line.part, line.size) == (part, size))
            print(*new, sep="\n", flush=True)
    print(report(lines))


if __name__ == "__main__":
    main()
