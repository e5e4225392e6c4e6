"""Starting: time until the command line prints its help, or a model computes an embedding.

Every row is a separate process, from its start to its end. The model is the demo's after an
export, without training, as weights do not change the time. The parts of the time to the first
embedding have their own rows.

usage: python benchmarks/start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from measuring import ROOT, Row, compare, show

from keras_xmr.experiments.runs.beginning import begin_training

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
AT_MOST = 1.3
"""How many times the import of TensorFlow the first embedding may take."""


def rows(smoke: bool = False) -> Iterator[Row]:
    """`--help`, and a model that is loaded and asked."""
    python = compare("", "", _process("-c", "pass"), repeats=3).seconds
    helped = compare(
        "python main.py --help", "", _process(str(ROOT / "main.py"), "--help"), repeats=5
    )
    yield _of_child(helped, python, "the start of Python")
    if smoke:
        return
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


def _of_child(row: Row, bound: float, bound_by: str) -> Row:
    """With its bound, and without memory and processor time of the process that waits."""
    return replace(row, memory=None, processor=None, bound=bound, bound_by=bound_by)


def untrained_run(folder: Path) -> Path:
    """The folder of the demo as it is exported, but not trained."""
    from keras_xmr.experiments.build import build_model, build_tokenizer
    from keras_xmr.experiments.config.loader import find_config, load_config
    from keras_xmr.experiments.experiment import Experiment
    from keras_xmr.experiments.export.saved_model import export_keras

    sizes = "data.source={name: scenes, train: 32, val: 8, test: 8}"
    config = load_config(
        find_config("scenes_pcme"),
        [f"output={folder}", f"data.records={folder / 'records'}", sizes],
    )
    run = Experiment(config)
    run.prepare()
    tokenizer = build_tokenizer(config, run.records)
    begin_training(run.folder, config, tokenizer.files())
    export_keras(build_model(config, run.records, tokenizer, pretrained=True), run.folder.model)
    return run.folder.path


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
    show(rows())
