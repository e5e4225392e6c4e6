"""Files and folders that cannot be read or written: a sentence, at the earliest moment."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path

import models
import pytest
import tensorflow as tf
from finished_runs import finished_run

from keras_xmr.commands import _cli as cli
from keras_xmr.commands._comparison import compare
from keras_xmr.commands._ensemble import _claim
from keras_xmr.commands._options import new_experiment
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.experiments.evaluation import external_scores
from keras_xmr.experiments.evaluation.relevance_files import write_file_relevance
from keras_xmr.experiments.export.saved_model import export_keras
from keras_xmr.experiments.runs.configs import write_config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.utils.disk_errors import disk_error_message
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import atomic_write, check_folder


@pytest.fixture
def in_the_way(tmp_path):
    """A file where a folder should be."""
    path = tmp_path / "file"
    path.write_text("")
    return path


MEMORY = "there is not enough memory"
ERRORS = [
    (OSError(errno.ENOSPC, "No space left on device", "manifest.json"), "manifest.json: No space"),
    (PermissionError(errno.EACCES, "Permission denied", "run"), "run: Permission denied"),
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    (OSError("Can't write data"), "Can't write data"),
    # Of libraries
    (
        RuntimeError("{{function_node SaveV2}} /run/1/pb.tmp9; No space left on device [Op]"),
        "/run/1/pb.tmp9: No space left on device; free some space and start again",
    ),
    (
        OSError("Can't write data (filename = '/run/w.h5', error message = 'File too large')"),
        "/run/w.h5: File too large; free some space",
    ),
    (RuntimeError("/run/events.1; Read-only file system"), "/run/events.1: Read-only file"),
    # Of too little memory
    (
        tf.errors.ResourceExhaustedError(
            None, None, "OOM when allocating tensor with shape[9000,80000] and type float"
        ),
        f"{MEMORY} for an array of shape[9000,80000]. To use less, reduce",
    ),
    (
        tf.errors.ResourceExhaustedError(None, None, "failed to allocate memory [Op:Mul]"),
        f"{MEMORY}. To use less, reduce",
    ),
    (
        MemoryError("Unable to allocate 37.3 GiB for an array with shape (100000, 50000)"),
        f"{MEMORY} for an array of shape (100000, 50000). To use less, reduce",
    ),
    (MemoryError(), f"{MEMORY}. To use less, reduce"),
]


@pytest.mark.parametrize(("error", "says"), ERRORS, ids=[str(n) for n in range(len(ERRORS))])
def test_errors_of_the_disk_and_of_memory_are_a_sentence(capsys, error, says):
    def work() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        cli._run(work)
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: {says}")
    assert ("train.batch_size" in told) == (MEMORY in says)
    assert told.count("\n") == 1


def test_names_in_errors_do_not_command_the_terminal(capsys):
    def work() -> None:
        raise UserError("\x1b[31m\u202egpj.exe is missing\nget it")

    with pytest.raises(SystemExit):
        cli._run(work)
    assert capsys.readouterr().err == "error: ?[31m?gpj.exe is missing\nget it\n"


def test_other_errors_are_not_taken_for_those_of_the_disk():
    def work() -> None:
        raise RuntimeError("no space for this in a set")

    with pytest.raises(RuntimeError):
        cli._run(work)


@pytest.fixture
def small_files():
    """Files may have 4,000 bytes: the system itself refuses to write on."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_an_export_that_does_not_fit_leaves_the_one_before(tmp_path, small_files):
    path = tmp_path / "model.keras"
    path.write_text("before")
    with pytest.raises(OSError, match="File too large") as caught:
        export_keras(models.points(), path)
    assert "File too large; free some space" in disk_error_message(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]
    assert path.read_text() == "before"


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*manifest\.json'"):
        atomic_write(tmp_path / "manifest.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_folders_that_cannot_be_written_are_refused(tmp_path, in_the_way, monkeypatch):
    check_folder(tmp_path / "new" / "run")
    with pytest.raises(UserError, match=r"file is not a folder"):
        check_folder(in_the_way / "new" / "run")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(UserError, match="cannot be written to"):
        check_folder(tmp_path / "new" / "run")


@pytest.mark.parametrize("way", ["own scores", "relevance", "compare", "ensemble", "train"])
def test_the_output_is_checked_before_the_work(way, tmp_path, in_the_way):
    nothing = tmp_path / "is not there.csv"
    config = load_config(find_config("scenes_pcme"), [f"output={in_the_way}"])
    work = {
        "own scores": lambda: external_scores.run(
            external_scores.ExternalScores(nothing, output=in_the_way)
        ),
        "relevance": lambda: write_file_relevance(
            nothing, in_the_way / "a.npz", ["test"], RelevanceOptions()
        ),
        "compare": lambda: compare([], [tmp_path / "no run"], in_the_way),
        "ensemble": lambda: _claim(RunFolder(config), ["a", "b"]),
        "train": lambda: write_config(RunFolder(config), config),
    }
    with pytest.raises(UserError, match="file is not a folder"):
        work[way]()


@pytest.mark.parametrize(
    "arguments",
    [("--set=output=file",), ("prepare", "--set=data.records=file/records")],
)
def test_a_run_that_has_no_place_is_refused(in_the_way, monkeypatch, capsys, arguments):
    monkeypatch.chdir(in_the_way.parent)
    with pytest.raises(SystemExit) as ended:
        cli.main(["main.py", *arguments])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: file is not a folder")


def test_what_is_cheap_to_look_at_is_looked_at_before_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_xmr.experiments.experiment", None)
    monkeypatch.chdir(tmp_path)
    nowhere = load_config(find_config("csv_pcme"), ["data.source.root=nowhere"])
    with pytest.raises(UserError, match=r"nowhere does not exist; data.source.root names"):
        new_experiment(nowhere, records=True, trains=True)
    finished_run(tmp_path, "taken", 0, 1.0)
    other = load_config(find_config("scenes_vsepp"), [f"output={tmp_path}", "name=taken"])
    for records in (True, False):
        with pytest.raises(ConfigError, match="taken holds a run with another config"):
            new_experiment(other, records=records, trains=True)
