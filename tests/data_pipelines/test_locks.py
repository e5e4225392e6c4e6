"""Folders in which one process works at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import models
import pytest

from data_pipelines.prepare import prepare
from keras_xmr.experiments import experiment
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.utils import files
from keras_xmr.utils.files import LockedError, locked, temporary_path

ROOT = Path(__file__).parent.parent.parent

HOLD = """
import sys, pathlib
from keras_xmr.utils.files import locked
with locked(pathlib.Path(sys.argv[1])):
    print("has it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another process that works in a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout.readline() == b"has it\n"
        yield process
        process.kill()


def test_a_second_process_is_told_of_the_first_until_it_is_killed(other, tmp_path):
    folder = tmp_path / "run"
    says = rf"run is in use by process {other.pid} \(-c .*run\)\. Wait for it to end"
    with pytest.raises(LockedError, match=says), locked(folder):
        pass
    (folder / f".best.weights.h5.{other.pid}.1.weights.h5").touch()
    (folder / ".kept").touch()
    other.send_signal(signal.SIGKILL)
    other.wait()
    with locked(folder):
        assert sorted(path.name for path in folder.iterdir()) == [".kept", ".lock"]
        assert f'"pid": {os.getpid()}' in (folder / ".lock").read_text()
    assert [path.name for path in folder.iterdir()] == [".kept"]


def test_a_folder_in_which_nothing_was_made_is_removed(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "some" / "run"):
        raise KeyError
    assert not (tmp_path / "some" / "run").exists()


def test_what_cannot_be_locked_says_so(tmp_path):
    (tmp_path / "file").touch()
    says = r"file/\.lock cannot be written"
    with pytest.raises(LockedError, match=says), locked(tmp_path / "file"):
        pass


def test_without_locks_of_the_system_work_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with locked(tmp_path / "run"), locked(tmp_path / "run"):
        (tmp_path / "run" / "made").touch()


def test_records_that_another_process_writes_are_left_to_it(tmp_path):
    options = models.tiny_config(tmp_path).data
    with locked(options.records), pytest.raises(LockedError, match="records is in use by process"):
        prepare(options)
    assert not options.records.exists()


@pytest.mark.parametrize("step", ["run", "train", "evaluate", "export", "write_relevance"])
def test_a_run_in_which_another_process_works_is_left_to_it(tmp_path, step):
    own = Experiment(models.tiny_config(tmp_path))
    folder = own.config.folder
    with locked(folder), pytest.raises(LockedError, match="scenes_pcme is in use by"):
        getattr(own, step)()
    assert not own.config.data.records.exists()


def test_records_are_prepared_whoever_trains(tmp_path, monkeypatch):
    """They may be those of many runs, and have a lock of their own."""
    config, done = models.tiny_config(tmp_path), []
    monkeypatch.setattr(experiment, "prepare", lambda data: done.append(data))
    monkeypatch.setattr(experiment, "data_report", lambda *_: "")
    with locked(config.folder):
        Experiment(config).prepare()
    assert done == [config.data]


def test_names_of_asides_are_those_that_are_removed(tmp_path):
    aside = temporary_path(tmp_path / "truth-test.npz", ".npz")
    aside.touch()
    with locked(tmp_path):
        assert not aside.exists()
