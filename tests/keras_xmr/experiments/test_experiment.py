"""An experiment in Python: its config, its steps and its folder."""

from __future__ import annotations

from pathlib import Path

import models
import pytest

from keras_xmr.experiments import experiment as module
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.utils.errors import ArgumentError, ConfigError, UserError


def test_changes_are_values_of_python():
    changes = {
        "seed": 3,
        "train.phases.0.learning_rate": 1e-05,
        "data.source.root": Path("my photos, and [more]"),
        "evaluation.time_limit": None,
        "evaluation.splits": ("val", "test"),
        "model.matcher": {"name": "match_probability", "samples": 4},
        "name": "yes",
    }
    config = Experiment("csv_pcme", changes).config
    assert config.seed == 3
    assert config.train.phases[0].learning_rate == 1e-5
    assert config.data.source.root == Path("my photos, and [more]")
    assert config.evaluation.time_limit is None
    assert config.evaluation.splits == ("val", "test")
    assert config.model.matcher.options()["samples"] == 4
    assert config.name == "yes"


def test_a_wrong_change_names_its_key():
    with pytest.raises(ConfigError, match=r"train\.batch_sise"):
        Experiment("csv_pcme", {"train.batch_sise": 8})
    with pytest.raises(ConfigError, match="neither a file nor the name of a config"):
        Experiment("csv_pcmee")
    with pytest.raises(ConfigError, match="got 64: a path is a text; put it in quotes"):
        Experiment("csv_pcme", {"data.records": 64})
    loaded = load_config(find_config("scenes_pcme"))
    assert Experiment(loaded).config is loaded
    with pytest.raises(ArgumentError, match="changes need a config by its name or file"):
        Experiment(loaded, {"seed": 3})


def test_a_folder_of_data_that_does_not_exist_is_said_before_anything_is_made(tmp_path):
    changes = {"data.source.root": tmp_path / "nope", "output": tmp_path / "runs"}
    changes["data.records"] = tmp_path / "records"
    with pytest.raises(UserError, match=r"nope does not exist; data\.source\.root names"):
        Experiment("csv_pcme", changes).run()
    assert not (tmp_path / "records").exists()
    with pytest.raises(UserError, match="holds no finished training"):
        _ = Experiment("csv_pcme", changes).model


def test_all_steps_share_one_lock(tmp_path, monkeypatch):
    """`run` calls the others, in a folder that it has locked."""
    config, done = models.tiny_config(tmp_path), []
    own = Experiment(config)

    def step(name):
        def work(*_):
            assert (config.folder / ".lock").exists()
            done.append(name)

        return work

    monkeypatch.setattr(module, "prepare", step("prepare"))
    monkeypatch.setattr(module, "data_report", lambda *_: "")
    monkeypatch.setattr(module, "plan_memory", lambda *_: None)
    monkeypatch.setattr(module, "build_tokenizer", step("tokenizer"))
    with pytest.raises(AttributeError):
        own.run()  # There are no records.
    assert done == ["prepare"]
    assert not config.folder.exists(), "nothing was made in it, and it is free again"
