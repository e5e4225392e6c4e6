"""What the imports of keras_xmr bring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import keras
import models
import pytest

import keras_xmr
from keras_xmr.model.required_backend import KerasBackendError

ROOT = Path(__file__).parents[3]

WITH_NUMPY_AND_SCIPY = """
import importlib.util, sys
import keras_xmr, keras_xmr.metrics, keras_xmr.judgements, keras_xmr.relevance
import keras_xmr.reranking
keras_xmr.compare, keras_xmr.compare_systems
assert keras_xmr.__version__ and "losses" in dir(keras_xmr)
assert keras_xmr.metrics.recall([[1.0, 0.0], [0.0, 1.0]])["i2t_recall_1"] == 1.0
assert keras_xmr.reranking.FastReranking()([[1.0, 0.0]]).image_to_text.shape == (1, 2)
assert importlib.util.find_spec("keras")  # as those do who only ask whether it is there
loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
assert {"numpy", "scipy"} <= loaded
absent = {"tensorflow", "keras", "pydantic", "tqdm", "rich", "yaml", "PIL", "matplotlib"}
assert not absent & loaded, absent & loaded
assert not [name for name in sys.modules if name.startswith("data_pipelines.sources")]
assert not [name for name in sys.modules if name.startswith("keras_xmr.experiments.config")]
"""


SEARCHING = """
import sys
before = set(sys.modules)
import keras_xmr.commands.search
import keras_xmr.search.search, keras_xmr.search.embedder
assert keras_xmr.commands.is_command("search")
slow = {"tqdm", "importlib.metadata", "importlib.resources", "email", "asyncio", "subprocess"}
slow |= {"PIL", "numpy.ma"}
assert not slow & (sys.modules.keys() - before), slow & sys.modules.keys()
import keras_xmr.search.index_build, keras_xmr.search.search, keras_xmr.search.embedder
import keras_xmr.search.photo_embedding, keras_xmr.search.embedder.published
loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
heavy = {"tensorflow", "keras", "scipy", "yaml", "matplotlib", "onnx", "h5py", "absl", "rich"}
absent = heavy | {"pydantic", "onnxruntime", "tokenizers", "huggingface_hub"}
assert not absent & loaded, absent & loaded
assert not [name for name in sys.modules if name.startswith("keras_xmr.experiments")]
import keras_xmr.search.server.process
loaded = {name.partition(".")[0] for name in sys.modules}
assert not heavy & loaded, heavy & loaded
assert not [name for name in sys.modules if name.startswith("keras_xmr.experiments")]
"""


CLEANING = """
import argparse, sys, tempfile, os
from keras_xmr.commands import clean
os.chdir(tempfile.mkdtemp())
clean.run(argparse.Namespace(run=None, yes=False))
import keras_xmr.experiments.runs.weight_files
assert "tensorflow" not in sys.modules
"""


def python(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_searching_and_serving_import_neither_tensorflow_nor_experiments():
    python(SEARCHING)


@pytest.mark.slow
def test_nothing_is_deleted_without_tensorflow():
    python(CLEANING)


@pytest.mark.slow
def test_metrics_judgements_relevance_and_rerankers_import_numpy_and_scipy_alone():
    python(WITH_NUMPY_AND_SCIPY)


@pytest.mark.slow
def test_a_model_with_another_backend_of_keras_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(
        KerasBackendError, match=r"run on TensorFlow, and Keras is set to 'jax'; unset"
    ):
        models.points()


def test_everything_that_is_exported_is_there():
    for name in keras_xmr.__all__:
        assert getattr(keras_xmr, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = keras_xmr.nothing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = keras_xmr.metrics.nothing
