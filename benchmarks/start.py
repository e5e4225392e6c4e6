"""Starting: how long it takes until the command line, or a model, has something to say.

Every figure is of a process of its own, from its start to its end. The model is that of the demo,
as an export leaves it, without training: weights change no time.

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

from measuring import ROOT, Row, compare, show

_ASK = """
import sys
import keras_xmr
run = keras_xmr.load(sys.argv[1])
run.embed_captions(["a red circle left of a small blue square"])
"""
_LIBRARIES = "import tensorflow, keras"


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
        run = untrained_run(Path(folder))
        libraries = compare("", "", _process("-c", _LIBRARIES), repeats=3).seconds
        found = compare("keras_xmr.load to the first embedding", "", _process("-c", _ASK, str(run)))
        yield _of_child(found, libraries, "importing TensorFlow and Keras")


def _of_child(row: Row, bound: float, bound_by: str) -> Row:
    """With its bound, and without the memory, which is that of the process that waits."""
    return replace(row, memory=None, bound=bound, bound_by=bound_by)


def untrained_run(folder: Path) -> Path:
    """The folder of the demo as it is exported, but not trained."""
    from keras_xmr.config.loader import find_config, load_config
    from keras_xmr.export import export_keras
    from keras_xmr.model.build import build_model, build_tokenizer
    from keras_xmr.pipeline import Run

    sizes = "data.source={name: scenes, train: 32, val: 8, test: 8}"
    config = load_config(
        find_config("scenes_pcme"),
        [f"output={folder}", f"data.records={folder / 'records'}", sizes],
    )
    run = Run(config)
    run.prepare()
    tokenizer = build_tokenizer(config, run.records)
    run.folder.begin(config, tokenizer.files())
    export_keras(build_model(config, run.records, tokenizer, pretrained=True), run.folder.model)
    return run.folder.path


def _process(*arguments: str) -> Callable[[], object]:
    """A function that runs Python, and waits for its end."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return lambda: subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True
    )


if __name__ == "__main__":
    show(rows())
