"""One command takes changed photos and captions over, and a kill loses nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import datasets
import models
import pytest
import tiny_runs
from small_index import StubEmbedder

from data_pipelines.source_changes import data_change
from keras_xmr.commands import _update_run as module
from keras_xmr.commands import update as command
from keras_xmr.commands._update_run import update
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.search import PhotoIndex
from keras_xmr.search.index_build import build_index
from keras_xmr.utils.errors import UserError

pytestmark = pytest.mark.slow


TRAINED = "the model as it was trained"


class Steps:
    """Notes the steps of experiments, and the one at which they are killed."""

    def __init__(self):
        self.done, self.killed_at, self.updates = [], "", False

    def begin(self, step):
        if step == self.killed_at:
            raise KeyboardInterrupt
        self.done.append(step)


def quick_experiment(steps):
    """An experiment whose training leaves weights that nothing was learned by."""

    class Quick(Experiment):
        def train(self):
            steps.begin("train")
            assert "has changed" not in str(data_change(self.config.data))
            tiny_runs.untrained(self)
            self.folder.checkpoints.mkdir()
            (self.folder.checkpoints / "checkpoint").touch()
            self.retriever = TRAINED

        def evaluate(self, is_brief=False):
            steps.begin("evaluate")
            assert is_brief
            # An update omits what takes most of the time of an evaluation.
            assert self.config.evaluation.report_card is (not steps.updates)
            self.folder.evaluation("test").mkdir(parents=True)
            self.folder.results("test").write_text(f"{len(self.records.split('train'))}")

        def export(self, earlier=None):
            steps.begin("export")
            assert not steps.updates or (earlier / "training.json").exists()

    return Quick


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A run of photos with its index, and what stands for its steps and its model."""
    section = datasets.csv_photos(tmp_path / "photos")
    source = json.dumps({name: v for name, v in section.items() if name != "splits"})
    named = "name=mine", "evaluation.report_card=true"
    config = models.tiny_config(tmp_path, f"data.source={source}", *named, *models.POINTS)
    Experiment(config).prepare()
    steps, fingerprint = Steps(), {"model": "old"}
    quick = quick_experiment(steps)
    quick(config).train()
    quick(config).evaluate(is_brief=True)
    monkeypatch.setattr(module, "Experiment", quick)

    def embedder(run, precision, earlier, model):
        assert model == (TRAINED if "train" in steps.done else None), "it is not loaded again"
        return StubEmbedder(fingerprint["model"])

    monkeypatch.setattr(module, "run_embedder", embedder)
    index = config.folder / "index"
    build_index(StubEmbedder("old"), tmp_path / "photos" / "images", index)
    (index / "judgements.csv").write_text("image,caption,grade\n")
    (config.folder / "audit").mkdir()
    steps.done.clear()
    steps.updates = True
    return config, steps, fingerprint


def add_photo(config, number=99):
    root = config.data.source.root
    photo = datasets.encoded(datasets.picture(number))
    (root / "images" / f"photo_{number}.jpg").write_bytes(photo)
    with (root / "captions.csv").open("a") as file:
        file.write(f"photo_{number}.jpg,a red dog\n")
    then = time.time() - 3600
    os.utime(config.data.records / "manifest.json", (then, then))


def images(config) -> int:
    return sum(
        len(part) for part in map(Experiment(config).records.split, ("train", "val", "test"))
    )


def test_changed_captions_are_trained_with_and_indexed(made, capsys, caplog):
    config, steps, fingerprint = made
    before = images(config)
    assert update(config).kept == 24
    assert steps.done == [], "what is up to date stays"
    kept = config.data.records / "features" / "digest" / "tokens.f2"
    kept.parent.mkdir(parents=True)
    kept.touch()
    add_photo(config)
    (config.folder / "best.weights.h5").touch()  # Of a run that keeps files of its training.
    fingerprint["model"] = "new"
    with caplog.at_level("INFO"):
        command.run(type("Arguments", (), {"run": config.folder, "index": None, "choose": False}))
    assert re.search(r"changed since .*: \w+ has \d+ images, not \d+", caplog.text)
    assert f"report: {config.folder / 'evaluation' / 'test' / 'report.html'}" in caplog.text
    assert steps.done == ["train", "evaluate", "export"]
    assert images(config) == before + 1
    assert kept.exists(), "features are those of the content of photos and captions"
    assert data_change(config.data) is None
    index = PhotoIndex.open(config.folder / "index")
    assert (len(index), index.fingerprint) == (25, "new")
    assert (config.folder / "index" / "judgements.csv").exists(), "what is not of the index stays"
    assert (config.folder / "audit").is_dir()
    assert not (config.folder / "best.weights.h5").exists(), "they are of the former model"
    assert load_run(config.folder).folder == config.folder
    assert not list(config.folder.parent.glob(".*"))
    assert not list(config.data.records.parent.glob(".*-update"))
    out = capsys.readouterr().out
    assert f"25 photos (1 new) in {config.folder / 'index'}" in out
    steps.done.clear()
    assert update(config).kept == 25
    assert steps.done == []


def test_runs_that_share_records_are_all_trained_again(made, caplog):
    """A run tells by its summary that another has taken the new photos over."""
    config, steps, _ = made
    done = config.folder / "training.json"
    digest = Experiment(config).records.digest
    done.write_text(json.dumps({"steps": 0, "records": digest}))
    copy = config.model_copy(update={"name": "copy"})
    shutil.copytree(config.folder, copy.folder)
    assert update(copy) is not None
    assert steps.done == []
    add_photo(config)
    update(config)
    assert steps.done == ["train", "evaluate", "export"]
    steps.done.clear()
    with caplog.at_level("INFO"):
        update(copy)
    assert "was trained on former photos or captions" in caplog.text
    assert steps.done == ["train", "evaluate", "export"]


def test_until_the_new_model_is_complete_the_run_is_the_old_one(made):
    config, steps, _ = made
    add_photo(config)
    old = (config.folder / "training.json").stat().st_mtime_ns
    trained = config.folder.parent / ".mine-update" / "mine"
    for step in ("train", "evaluate", "export"):
        steps.killed_at = step
        with pytest.raises(KeyboardInterrupt):
            update(config)
        assert (config.folder / "training.json").stat().st_mtime_ns == old
        assert load_run(config.folder).folder == config.folder
        if step != "train":  # What is done goes on, as the steps themselves do.
            assert json.loads((trained / "training.json").read_text())["steps"] == 0
            for name in ("checkpoints", "evaluation"):
                module.shutil.rmtree(trained / name, ignore_errors=True)
    steps.killed_at = ""
    update(config)
    assert (config.folder / "training.json").stat().st_mtime_ns > old
    assert images(config) == 25


def test_a_kill_while_the_new_model_takes_its_place_is_made_good(made, monkeypatch):
    config, steps, _ = made
    add_photo(config)
    replaced, replace = [], os.replace

    def killed(source, target):
        if Path(target).parent == config.folder:
            replaced.append(Path(target).name)
            if len(replaced) == 3:
                raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        update(config)
    assert load_run(config.folder).folder == config.folder
    monkeypatch.setattr(module.os, "replace", replace)
    steps.done.clear()
    update(config)
    assert steps.done == [], "no second training"
    assert not list(config.folder.parent.glob(".*"))
    assert (config.folder / "evaluation" / "test" / "results.csv").exists()


def test_data_that_cannot_be_read_change_nothing(made):
    config, steps, _ = made
    add_photo(config)
    for path in (config.data.source.root / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UserError, match="cannot be used"):
        update(config)
    assert steps.done == []
    assert images(config) == 24


def test_an_index_that_cannot_be_read_is_said_before_the_training(made):
    config, steps, _ = made
    manifest = config.folder / "index" / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"version": content["version"] - 1}))
    add_photo(config)
    with pytest.raises(UserError, match="build the index again"):
        update(config)
    assert steps.done == []
