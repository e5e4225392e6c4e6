"""Fixtures for all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Whatever a test imports first; tests of other frameworks run in processes of their own.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Threads of several processes wait for each other on few cores, and nothing here is large.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import command_line
import graphs
import pytest
from plain_install import sitecustomize  # noqa: F401

# Processes that tests start import TensorFlow as in a plain installation, as this one does.
os.environ["PYTHONPATH"] = command_line.PYTHONPATH
# Nobody pulls the plug of a test, so no file waits for the disk.
os.fsync = lambda descriptor: None
# What Python compiles is kept: they need not compile it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["golden_numbers", "rare_garbage"]

if TYPE_CHECKING:
    from keras_xmr.experiments.experiment import Experiment

# By their processor time, which is half of the whole suite.
LONGEST = (
    "test_other_backends.py",
    "test_closed_form_first.py",
    "test_backend_matrix.py",
    "test_saved_model.py",
    "test_replicas.py",
    "test_workers.py",
    "test_rows.py",
    "test_pretrained.py",
    "test_integrations.py",
    "test_server_page.py",
    "test_training.py",
    "test_embedder_of_tokens.py",
    "test_comparison.py",
    "test_finite_gradients.py",
    "test_result_pages.py",
    "test_experiment_of_docs.py",
    "test_benchmarks.py",
    "test_kept_features.py",
    "test_without_tensorflow.py",
    "test_pretrained_run.py",
    "test_light_install.py",
    "test_evaluation.py",
    "test_birds.py",
    "test_two_towers.py",
    "test_frozen_features.py",
    "test_gather.py",
    "test_run_embedder.py",
    "test_docs.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then those with slow tests: none is left to wait for at the end."""
    # Whichever test asks for the trained run first waits for its training.
    for item in items:
        if "trained" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    longest = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path.name, len(LONGEST)), item.path not in slow))


def pytest_collection_finish() -> None:
    graphs.optimize(False)
    graphs.compile_parts(False)


@pytest.fixture
def eager() -> Iterator[None]:
    """No function is traced, which takes longer than the few calls of some tests do."""
    with graphs.eager():
        yield


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Pages without pictures, whose drawing takes most of the time."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt.Figure, "tight_layout", lambda self: None)
    monkeypatch.setattr(plt.Figure, "savefig", lambda self, path, dpi: path.write_bytes(b""))


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Experiment:
    """The tiny run after its training. Only to be read; `tiny_runs.copy_of` makes a copy."""
    import tiny_runs

    return tiny_runs.trained_once(tiny_runs.shared_folder(tmp_path_factory.getbasetemp()))
