"""Files and folders that cannot be read or written: a sentence, at the earliest moment."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from command_line import start

from data_pipelines.errors import UserError
from data_pipelines.files import atomic_write
from data_pipelines.folders import check_folder
from keras_xmr import cli, external_scores
from keras_xmr.comparison import compare
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.schema import RelevanceOptions
from keras_xmr.ensemble.evaluate import _claim
from keras_xmr.relevance.write import relevance_of_file
from keras_xmr.run_folder import RunFolder


@pytest.fixture
def in_the_way(tmp_path):
    """A file where a folder should be."""
    path = tmp_path / "file"
    path.write_text("")
    return path


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "plan.json"), "plan.json: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "run"), "run: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("Can't write data"), "Can't write data"),
    ],
)
def test_errors_of_the_disk_are_a_sentence(capsys, error, says):
    def work() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        cli._run(work)
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"error: {says}")


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*plan\.json'"):
        atomic_write(tmp_path / "plan.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_folders_that_cannot_be_written_are_refused(tmp_path, in_the_way, monkeypatch):
    check_folder(tmp_path / "new" / "run")
    with pytest.raises(UserError, match=r"file: is no folder"):
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
        "relevance": lambda: relevance_of_file(
            nothing, in_the_way / "a.npz", ["test"], RelevanceOptions()
        ),
        "compare": lambda: compare([], [tmp_path / "no run"], in_the_way),
        "ensemble": lambda: _claim(RunFolder(config), ["a", "b"]),
        "train": lambda: RunFolder(config).claim(config),
    }
    with pytest.raises(UserError, match="file: is no folder"):
        work[way]()


def test_a_relevance_file_that_is_a_folder_is_refused(tmp_path):
    folder = tmp_path / "a.npz"
    folder.mkdir()
    with pytest.raises(UserError, match="is a folder"):
        relevance_of_file(tmp_path / "no.csv", folder, ["test"], RelevanceOptions())


@pytest.mark.parametrize(
    "arguments",
    [("--set=output=file",), ("prepare", "--set=data.records=file/records")],
)
def test_a_run_that_has_no_place_is_refused_before_tensorflow(tmp_path, in_the_way, arguments):
    done = start(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr[:23]) == (1, "error: file: is no fold")
