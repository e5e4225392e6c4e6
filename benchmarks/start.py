"""Starting: time until the command line prints its help, finds photos, or serves, and memory.

Every row is a separate process, from its start to its end; its memory is the peak of the process.
Searches are in an index of 8,000 photos. Its text tower has the size of MiniLM, its image tower is
a ResNet-18. All weights are random, which does not change the time. Searches are compared with the
shortest script that does the same by ONNX Runtime, and `index` with the image tower alone, of
pixels in memory. The model of the first embedding in Python is the demo's, without training. The
parts of that time have their own rows.

usage: python benchmarks/start.py           # the last rows, of a model in Python, take a minute
       python benchmarks/start.py --index=FOLDER   # the rows of searches, for an index of WordPiece
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from measuring import LEFT_OUT, ROOT, Row, compare, show

from keras_xmr.experiments.runs.beginning import begin_training
from keras_xmr.utils.vectors import chunks

_ASK = """
import sys
import time
times = [time.perf_counter()]
import tensorflow, keras
times.append(time.perf_counter())
import keras_xmr.experiments.trained_model
times.append(time.perf_counter())
run = keras_xmr.load(sys.argv[1])
times.append(time.perf_counter())
for word in "red", "blue":
    run.embed_texts([f"a {word} circle left of a small square"])
    times.append(time.perf_counter())
print(*(after - before for before, after in zip(times, times[1:])))
"""
_PARTS = (
    *("importing TensorFlow and Keras", "importing keras_xmr", "loading the model"),
    *("the first embedding, with its graph", "the next embedding"),
)
_SHORTEST = """
import sys
from pathlib import Path
import numpy as np, onnxruntime, tokenizers
index, text = Path(sys.argv[1]), sys.argv[2]
(model,) = index.glob("embedder-*")
words = tokenizers.BertWordPieceTokenizer(str(model / "vocabulary.txt"))
ids = words.encode(text).ids
tower = onnxruntime.InferenceSession(str(model / "text_tower.onnx"))
feed = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
names = [each.name for each in tower.get_outputs()]
query = dict(zip(names, tower.run(None, feed)))["mean"][0]
(vectors,) = index.glob("*.mean.npy")
photos = np.load(vectors)
scores = photos @ query / np.linalg.norm(photos, axis=1)
(described,) = index.glob("*.paths.txt")
paths = described.read_text().split("\\0")
for number in np.argsort(-scores)[:10]:
    print(paths[number], scores[number])
"""
_TEXT = "two dogs run in the snow"
PHOTOS, REPEATS = 8000, 5
"""Photos of the index, and processes of a median."""

SEARCHES, VIEWED, INDEXED = 500, 100, 150
"""Searches and thumbnails of a server, and photos of 500 x 375 pixels that `index` embeds."""

AT_MOST = 1.3
"""How many times the import of TensorFlow the first embedding may take."""


def rows(smoke: bool = False) -> Iterator[Row]:
    """`--help`, searches and a server, and a model that is loaded and asked."""
    row = in_turns("python main.py --help", [str(ROOT / "main.py"), "--help"], ["-c", "pass"])
    yield replace(row, most_processor=0.25)
    if smoke:
        return
    yield from installed()
    with tempfile.TemporaryDirectory() as folder:
        # The peak of a child includes the memory of its parent when it began, so that stays small.
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            index = other.submit(text_index, Path(folder)).result()
        yield from searches(index)
        yield from served(index)
        yield indexed(index, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        run, said = untrained_run(Path(folder)), list[str]()
        libraries = compare("", "", _process("-c", "import tensorflow, keras"), repeats=3).seconds
        ask = _process("-c", _ASK, str(run), said=said)
        found = compare("keras_xmr.load to the first embedding", "", ask, repeats=3)
        yield replace(
            _of_child(found, libraries, "importing TensorFlow and Keras"),
            at_most=AT_MOST,
            why="Most of the rest is Keras, which builds both towers layer by layer to load their "
            "weights, and the graph of the first embedding; the rows below have the parts.",
        )
        parts = np.median([[float(part) for part in line.split()] for line in said], axis=0)
        for name, seconds in zip(_PARTS, parts.tolist(), strict=True):
            yield Row(f"of it: {name}", "", seconds)


def searches(index: Path) -> Iterator[Row]:
    """A search from the prompt and the start of a server, of an index."""
    size = f"{len(np.load(next(index.glob('*.mean.npy')), mmap_mode='r')):,} photos"
    program = [str(ROOT / "main.py")]
    search = [*program, "search", f"--index={index}", _TEXT]
    row = in_turns(
        f"python main.py search, {size}",
        search,
        ["-c", _SHORTEST, str(index), _TEXT],
        "the same in twenty lines of ONNX Runtime and tokenizers",
    )
    why = "Imports, checksums and the look for changed photos take most of the rest."
    yield replace(row, at_least=1 / AT_MOST, most_seconds=0.8, most_memory=300e6, why=why)
    yield in_turns('python -c "import onnxruntime"', ["-c", "import onnxruntime"], ["-c", "pass"])
    times = [started(program, index) for _ in range(REPEATS)]
    row = _row(f"python main.py serve until it is ready, {size}", times)
    yield replace(row, most_seconds=2.0)


def installed() -> Iterator[Row]:
    """Packages for searches and the server, installed anew; without a network there is no row."""
    install = [*(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")]
    with tempfile.TemporaryDirectory() as folder:
        into = ["--target", folder, "-r", str(ROOT / "deploy" / "search.txt")]
        begin = time.perf_counter()
        done = subprocess.run([*install, *into], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{LEFT_OUT}packages: {done.stderr.strip().splitlines()[-1]}", flush=True)
            return
        seconds = time.perf_counter() - begin
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        what = "pip install -r deploy/search.txt; its memory is the size of all files"
        yield Row(what, "", seconds, memory=size, most_memory=300e6)


def served(index: Path) -> Iterator[Row]:
    """Memory of a server that was used, and processor time of a photo that is added meanwhile."""
    photos = Path(json.loads((index / "manifest.json").read_bytes())["content"]["root"])
    with _begun(
        [str(ROOT / "main.py"), "serve", f"--index={index}", "--port=0", "--watch"]
    ) as process:
        try:
            address = _wait(process)
            words, begin = _TEXT.split(), time.perf_counter()
            for number in range(SEARCHES):
                text = "+".join(words[number % len(words) :])
                _get(f"{address}search?texts={text}&count=20")
            seconds = (time.perf_counter() - begin) / SEARCHES
            for number in range(VIEWED):
                _get(f"{address}thumbnails/{number}")
            used, _ = _used(process.pid)
            what = f"serve, memory held after {SEARCHES} searches and {VIEWED} thumbnails; a search"
            yield Row(what, f"{PHOTOS:,} photos", seconds, memory=used, most_memory=400e6)
            random, times = np.random.default_rng(1), []
            for number in range(REPEATS + 1):
                begin, (_, before) = time.perf_counter(), _used(process.pid)
                (photos / f"new{number}.jpg").write_bytes(_photo(random))
                while json.loads(_get(f"{address}healthz"))["photos"] < PHOTOS + number + 1:
                    time.sleep(0.1)
                used, after = _used(process.pid)
                times.append(Child(time.perf_counter() - begin, after - before, used))
            row = _row(f"one photo more under --watch, {PHOTOS:,} photos", times[1:])
            yield replace(row, most_processor=0.5)
        finally:
            process.terminate()


def indexed(index: Path, folder: Path) -> Row:
    """Photos through `index`, beside the image tower alone."""
    from keras_xmr.search import PhotoIndex
    from keras_xmr.search.embedder import Embedder
    from keras_xmr.search.index_build import build_index

    random, root = np.random.default_rng(2), (folder / "larger").resolve()
    root.mkdir()
    for number in range(INDEXED):
        (root / f"{number:05d}.jpg").write_bytes(_photo(random, (500, 375)))
    embedder = Embedder.open(PhotoIndex.open(index).embedder_path)
    files = [path.read_bytes() for path in sorted(root.iterdir())]
    pixels = np.stack([embedder.pixels(data, "a photo") for data in files])
    size = embedder.batch_size

    def build() -> None:
        build_index(embedder, root, folder / "built")
        shutil.rmtree(folder / "built")

    row = compare(
        "photos through index",
        "a photo of 500 x 375",
        build,
        lambda: [embedder.embed_pixels(some) for some in chunks(pixels, size)],
        "the image tower alone",
        items=INDEXED,
        repeats=3,
    )
    why = (
        "A photo is decoded and resized in floats, as for training: 0.6 and 1.2 ms; a smaller "
        "decode has other pixels. That is a fifth of this tower's time, and a tenth of the "
        "default encoder's."
    )
    return replace(row, at_least=1 / 1.1, why=why)


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def _used(process: int) -> tuple[float, float]:
    """Resident memory in bytes, and seconds of processor time until now, of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return 1024 * memory, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Child:
    """Measures of a process.

    Attributes:
        seconds: Wall time.
        processor: Processor time of its threads.
        memory: Peak of its resident memory, in bytes.
    """

    seconds: float
    processor: float
    memory: float


def in_turns(
    what: str, ours: Sequence[str], theirs: Sequence[str], against: str = "the start of Python"
) -> Row:
    """Runs two programs of Python in turns, so that other work on the machine meets both."""
    ended(ours), ended(theirs)  # Files are read once.
    times = [(ended(ours), ended(theirs)) for _ in range(REPEATS)]
    own, other = (_row(what, list(each)) for each in zip(*times, strict=True))
    return replace(
        own,
        baseline=other.seconds,
        baseline_processor=other.processor,
        baseline_memory=other.memory,
        against=against,
    )


def _row(what: str, times: Sequence[Child]) -> Row:
    seconds, processor, memory = (
        median(getattr(each, name) for each in times) for name in ("seconds", "processor", "memory")
    )
    return Row(what, "", seconds, memory=memory, processor=processor)


def ended(arguments: Sequence[str]) -> Child:
    """Runs a program of Python to its end."""
    return _child(arguments, lambda process: process.stdout.read())


def started(program: Sequence[str], index: Path) -> Child:
    """Runs a server until it has loaded its model."""
    serve = [*program, "serve", f"--index={index}", "--port=0"]
    return _child(serve, _wait, ends=True)


def _wait(process: Any) -> str:
    """Waits until a server has loaded its model; returns its address."""
    address: str = process.stdout.readline().split(b" at ")[1].split()[0].decode()
    begin = time.perf_counter()
    while True:
        with suppress(OSError):  # It does not listen yet, or says that it loads.
            _get(f"{address}healthz")
            return address
        if time.perf_counter() - begin > 120:
            raise RuntimeError("the server does not answer")
        time.sleep(0.02)


def _begun(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process of Python with its output, which imports the packages of this checkout."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _child(arguments: Sequence[str], wait: Callable[[Any], object], ends: bool = False) -> Child:
    """Measures a process until something was waited for."""
    begin = time.perf_counter()
    with _begun(arguments) as process:
        wait(process)
        seconds = time.perf_counter() - begin
        if ends:
            process.terminate()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not ends:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    return Child(seconds, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)


def text_index(folder: Path) -> Path:
    """An index of made-up photos, with towers of the size of MiniLM and ResNet-18.

    Embeddings of the photos are drawn.
    """
    import keras_hub

    from keras_xmr.experiments.export.run_embedder import run_embedder
    from keras_xmr.search.embedder import Embedder
    from keras_xmr.search.index_build import build_index

    preset = folder / "preset"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_TEXT.split()]
    words += [f"word{number}" for number in range(30_522 - len(words))]
    backbone = keras_hub.models.BertBackbone(len(words), 6, 12, 384, 1536)
    backbone.save_to_preset(str(preset))
    keras_hub.tokenizers.BertTokenizer(words, lowercase=True).save_to_preset(str(preset))
    pixels, filters = folder / "pixels", [64, 128, 256, 512]
    resnet = keras_hub.models.ResNetBackbone(
        [64], [7], filters, [2] * 4, [1, 2, 2, 2], "basic_block"
    )
    resnet.save_to_preset(str(pixels))
    keras_hub.layers.ResNetImageConverter((224, 224), 1 / 255).save_to_preset(str(pixels))
    image = f"model.image.encoder={{name: keras_hub_image, preset: {pixels}}}"
    side = ["data.image.size=224", "data.image.resize=224"]
    text = f"model.text.encoder={{name: keras_hub_text, preset: {preset}}}"
    point = ["model.image.head=point", "model.text.head=point", "model.matcher=cosine"]
    more = [
        image,
        *side,
        text,
        "model.text.pooling=mean",
        *point,
        "objective=[info_nce]",
        "model.dimension=384",
    ]
    run = _small_experiment(folder, *more, "evaluation.matchers=[]")
    _untrained(run)
    random = np.random.default_rng(0)

    class Drawn(Embedder):
        """Draws embeddings of photos."""

        def embed_pixels(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
            return {"mean": random.standard_normal((len(pixels), 384), np.float32)}

    (folder / "photos").mkdir()
    for number in range(PHOTOS):
        (folder / "photos" / f"{number:05d}.jpg").write_bytes(_photo(random))
    made = run_embedder(run.folder.path)
    embedder = Drawn(made.folder, made._content)
    build_index(embedder, (folder / "photos").resolve(), folder / "index")
    return folder / "index"


def _photo(random: np.random.Generator, size: tuple[int, int] = (9, 9)) -> bytes:
    """A JPEG file of smooth colours."""
    from PIL import Image

    buffer = io.BytesIO()
    coarse = Image.fromarray(random.integers(0, 256, (9, 9, 3)).astype(np.uint8))
    coarse.resize(size).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _of_child(row: Row, bound: float, bound_by: str) -> Row:
    """With its bound, and without memory and processor time of the process that waits."""
    return replace(row, memory=None, processor=None, bound=bound, bound_by=bound_by)


def untrained_run(folder: Path) -> Path:
    """The folder of the demo as it is exported, but not trained."""
    from keras_xmr.experiments.export.saved_model import export_keras

    run = _small_experiment(folder)
    export_keras(_untrained(run), run.folder.model)
    return run.folder.path


def _untrained(run: Any) -> Any:
    """The model of a run, whose weights are kept as if a training of no steps had ended."""
    from keras_xmr.experiments.build import build_model, build_tokenizer

    tokenizer = build_tokenizer(run.config, run.records)
    begin_training(run.folder, run.config, tokenizer.files())
    model = build_model(run.config, run.records, tokenizer, pretrained=True).without_optimizer()
    model.save_weights(run.folder.last_weights)
    run.folder.done.write_text('{"steps": 0}')
    return model


def _small_experiment(folder: Path, *overrides: str) -> Any:
    """The demo with few scenes, prepared."""
    from keras_xmr.experiments.config.loader import load_config
    from keras_xmr.experiments.config.packaged_configs import find_config
    from keras_xmr.experiments.experiment import Experiment

    sizes = "data.source={name: scenes, train: 32, val: 8, test: 8}"
    paths = [f"output={folder}", f"data.records={folder / 'records'}"]
    run = Experiment(load_config(find_config("scenes_pcme"), [*paths, sizes, *overrides]))
    run.prepare()
    return run


def _process(*arguments: str, said: list[str] | None = None) -> Callable[[], None]:
    """A function that runs Python, waits for its end, and keeps the last line that it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *arguments]

    def run() -> None:
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        if said is not None:
            said.append(done.stdout.splitlines()[-1])

    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", type=Path)
    chosen = parser.parse_args().index
    show(rows() if chosen is None else searches(chosen.resolve()))
