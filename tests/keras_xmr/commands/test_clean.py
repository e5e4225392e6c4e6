"""The command `clean`: lists what may go, asks, and deletes it."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import pytest
from finished_runs import finished_run

from keras_xmr.commands import clean
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.weight_files import (
    finish_training,
    superfluous,
    trained_weights,
    write_model,
)
from keras_xmr.utils.errors import UserError


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run with two SavedModels and all files of its training."""
    monkeypatch.chdir(tmp_path)
    folder = finished_run(tmp_path / "saved_models", "first", 0, 1.0)
    config = load_run(folder.path)
    folder.checkpoints.mkdir()
    (folder.checkpoints / "checkpoint").write_bytes(b"c" * 2_000_000)
    folder.best_weights.write_bytes(b"best")
    folder.last_weights.write_bytes(b"l" * 1_000_000)
    for version in ("2", "10"):
        (folder.serving / version).mkdir(parents=True)
        (folder.serving / version / "saved_model.pb").write_bytes(b"s" * 500_000)
    finish_training(
        folder, {"steps": 3}, config, [folder.best_weights.name, folder.last_weights.name]
    )
    write_model(folder, lambda path: path.write_bytes(b"model"), config)
    return folder


def names(folder) -> set[str]:
    return {str(path.relative_to(folder.path)) for path in folder.path.rglob("*")}


def cleaned(*words: str) -> None:
    parser = argparse.ArgumentParser()
    clean.add_arguments(parser)
    clean.run(parser.parse_args(words))


@pytest.mark.slow
def test_all_that_may_go_is_listed_and_goes_after_a_yes(run, capsys, monkeypatch):
    before = names(run)
    monkeypatch.setattr(clean.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")
    cleaned()
    assert names(run) == before
    assert len(asked) == 1
    out = capsys.readouterr().out
    assert "2.0 MB  saved_models/first/checkpoints" in out
    assert "3.5 MB  together" in out
    assert "serving/10" not in out
    monkeypatch.setattr("builtins.input", lambda _: "y")
    cleaned()
    gone = before - names(run)
    assert {path.partition("/")[0] for path in gone} == {
        *("checkpoints", "best.weights.h5", "last.weights.h5", "serving")
    }
    assert (run.serving / "10").exists()
    assert not (run.serving / "2").exists()
    capsys.readouterr()
    cleaned("--run=saved_models/first", "--yes")
    assert capsys.readouterr().out == "nothing to delete\n"
    assert trained_weights(run, load_run(run.path)) == run.model


@pytest.mark.slow
def test_nothing_goes_where_the_exported_model_is_not_the_only_copy(run):
    before = names(run)
    with pytest.raises(UserError, match="--yes"):
        cleaned()
    run.model.write_bytes(b"other")
    with pytest.raises(UserError, match="is damaged, or of another run"):
        cleaned("--yes")
    assert names(run) - {".lock"} == before - {".lock"}
    for change in ({"exported": None}, {"is_complete": False}):
        summary = json.loads(run.done.read_text())
        run.done.write_text(json.dumps(summary | change))
        assert superfluous(run) == []
        run.done.write_text(json.dumps(summary))
