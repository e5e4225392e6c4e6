"""Memory of whole processes: a training, the ranks of an evaluation, a server of a million photos.

Every figure is the largest resident memory of a separate process, with its libraries; seconds are
those of a step, of all ranks, and of a search by words. A training has the sizes of the paper, and
needs at least its weights, their gradients and the two moments of Adam. The server has an index of
made-up photos and vectors, and needs at least the vectors. A process for comparison has the same
model and the vectors as an array, and computes all products.

usage: RELEASED=FOLDER TORCH_PYTHON=PATH python benchmarks/memory.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from measuring import Row, answer, largest_resident, other_process, show, size_of
from released import FOLDERS, released
from steps import Step, sizes_of, told

METHODS = ("PCME", "VSE-infinity")
"""Whose training is measured: that of the README, and one with as many weights as any."""

PHOTOS, STEPS = 1_000_000, 5
TEXTS = [f"a {colour} circle left of a small square" for colour in ("red", "blue", "green", "grey")]


def rows(smoke: bool = False) -> Iterator[Row]:
    """Each compared with the plain alternative."""
    for name in METHODS[: 1 if smoke else None]:
        sizes = sizes_of(name, smoke)
        ours = _asked("training", name, str(int(smoke)))
        with released(FOLDERS[name], name, **asdict(sizes)) as (ask, program):
            theirs = [ask("step") for _ in range(STEPS)] if ask and not smoke else None
        moments = f"{told(sizes)}; weights, gradients and moments {size_of(ours.found[0])}"
        yield _row(f"{name}, a training", moments, ours, theirs and theirs[-1], program)
    images, dimension = (20, 8) if smoke else (5000, 1024)
    with tempfile.TemporaryDirectory() as folder:
        ours = _asked("ranks", str(images), str(dimension), folder)
        with released("vse_infty", "folds", arrays=f"{folder}/arrays.npz") as (ask, program):
            theirs = ask("whole") if ask and not smoke else None
        size = f"{images:,} x {5 * images:,}, D {dimension}; embeddings {size_of(ours.found[0])}"
        yield _row("all ranks of an evaluation", size, ours, theirs, program)
    if not smoke:
        yield _server(PHOTOS)


def _row(what: str, size: str, ours: Any, theirs: Any, against: str) -> Row:
    return Row(
        what,
        f"{size}; whole process",
        ours.seconds,
        theirs.seconds if theirs else None,
        against if theirs else "",
        ours.whole,
        theirs.whole if theirs else None,
        processor=ours.cpu_seconds,
        baseline_processor=theirs.cpu_seconds if theirs else None,
    )


def _asked(*work: str) -> SimpleNamespace:
    """What a process of this script takes for one of its works, the last time."""
    with other_process(sys.executable, "memory.py", *work) as (ask, _):
        return [ask(work[0]) for _ in range(1 if work[0] == "ranks" else STEPS)][-1]


def _training(name: str, smoke: str) -> dict[str, Callable[[], list[int]]]:
    step = Step(name, sizes_of(name, bool(int(smoke))))
    weights = sum(int(np.prod(w.shape)) for w in step.model.trainable_variables)

    def training() -> list[int]:
        step.train()
        return [4 * 4 * weights]

    return {"training": training}


def _ranks(images: str, dimension: str, folder: str) -> dict[str, Callable[[], list[int]]]:
    from evaluation import made_up, ranking

    image, caption, _ = made_up(int(images), int(dimension))
    np.savez(f"{folder}/arrays.npz", image=image, caption=caption)
    count = image.nbytes + caption.nbytes
    del image, caption
    rank = ranking(int(images), int(dimension))["streamed"]

    def ranks() -> list[int]:
        rank()
        return [count]

    return {"ranks": ranks}


def _server(photos: int) -> Row:
    """A server of an index of made-up vectors, beside a model and an array."""
    from start import untrained_run

    with tempfile.TemporaryDirectory() as folder:
        run, index = untrained_run(Path(folder)), Path(folder) / "index"
        _finish(run)
        shape = write_index(run, Path(folder), index, photos)
        theirs = _asked("array", str(run), str(index))
        ours = served(index)
    vectors = photos * 4 * int(np.prod(shape))
    return _row(
        "a server, a search by words",
        f"{photos:,} vectors of {shape[-1]}, {size_of(vectors)}",
        ours,
        theirs,
        "the model, the vectors as an array, and all products",
    )


def _finish(run: Path) -> None:
    """Makes a run one whose training has ended."""
    import keras_xmr
    from keras_xmr.runs.folder import RunFolder

    loaded = keras_xmr.load(run)
    folder = RunFolder(loaded.config)
    loaded.model.save_weights(folder.last_weights)
    folder.done.write_text(json.dumps({"steps": 1}))


def write_index(run: Path, root: Path, path: Path, photos: int) -> tuple[int, ...]:
    """Writes an index of made-up photos and vectors; returns the shape of the vectors of one."""
    from keras_xmr.search.build import _Builder
    from keras_xmr.search.photo_index import PhotoIndex
    from keras_xmr.search.photos import Photo
    from keras_xmr.search.run_model import RunModel

    path.mkdir()
    model = RunModel(run)
    builder = _Builder(model, root, path, "exact", "")
    like = model.embed_texts(TEXTS)
    random = np.random.default_rng(0)
    described = [
        Photo(n, f"{n // 1000:04}/{n:07}.jpg", 1, 1, 1, f"{n:064x}", "", 500, 375, f"{n:032x}")
        for n in range(photos)
    ]
    arrays = {
        name: random.standard_normal((photos, *values.shape[1:]), np.float32)
        for name, values in like.items()
    }
    builder._append(described, arrays)
    builder._save()
    builder._finish()
    opened = PhotoIndex.open(path)
    return tuple(opened.vectors.shape)


def served(index: Path) -> SimpleNamespace:
    """Starts the server, searches, and says how long that takes and how much memory there is."""
    import httpx
    from serving import MAIN, wait_until_ready

    command = [sys.executable, str(MAIN), "serve", f"--index={index}", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split("at ")[1].split("/ ")[0]
            wait_until_ready(url, 300)
            seconds = []
            for text in 3 * TEXTS:
                begin = time.perf_counter()
                httpx.post(f"{url}/search", json={"texts": [text]}, timeout=60).raise_for_status()
                seconds.append(time.perf_counter() - begin)
            whole = largest_resident(server.pid)
            return SimpleNamespace(seconds=median(seconds), cpu_seconds=None, whole=whole)
        finally:
            server.terminate()


def _array(run: str, index: str) -> dict[str, Callable[[], None]]:
    from keras_xmr.search.photo_index import PhotoIndex
    from keras_xmr.search.run_model import RunModel

    model = RunModel(Path(run))
    opened = PhotoIndex.open(Path(index))
    files = sorted((Path(index) / "vectors").glob("*.vectors.npy"))
    vectors = np.concatenate([np.load(file) for file in files])[:, 0]

    def array() -> None:
        embedded = model.prepare(model.embed_texts(TEXTS[:1]), "caption")
        query = opened.augmentation.query_vectors(embedded, None)[0, 0]
        scores = vectors @ query
        np.argpartition(-scores, 20)[:20]

    return {"array": array}


WORKS: dict[str, Callable[..., dict[str, Any]]] = {
    "training": _training,
    "ranks": _ranks,
    "array": _array,
}


def main() -> None:
    """Measures, or is a process that is measured."""
    if len(sys.argv) > 1:
        answer(lambda: WORKS[sys.argv[1]](*sys.argv[2:]))
    else:
        show(rows())


if __name__ == "__main__":
    main()
