"""Weights of frozen encoders that files hold are left out of checkpoints, and nothing is lost."""

from __future__ import annotations

import errno
import shutil

import h5py
import keras
import models
import numpy as np
import presets
import pytest
import tensorflow as tf

from keras_xmr.commands._steps import Run
from keras_xmr.encoders import KerasApplications, KerasHubImage, KerasHubText
from keras_xmr.runs.cluster import Cluster
from keras_xmr.runs.folder import BEST_IN_PART
from keras_xmr.training.checkpoint_files import (
    CheckpointError,
    CheckpointFiles,
    ExternalWeights,
    find_external_weights,
)
from keras_xmr.training.checkpoints import Checkpoints
from keras_xmr.training.distribution import Distribution

HELD = ExternalWeights({"text": "of the preset"})


@pytest.fixture
def model():
    model = models.pcme()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


@pytest.fixture
def begun(model, tmp_path):
    """Checkpoints of a phase that leaves the text encoder as its preset has it."""
    checkpoints = opened(tmp_path, model)
    checkpoints.start_phase(["text"])
    checkpoints.limit_external_weights(tmp_path / "best.weights.h5")
    return checkpoints


def opened(folder, model, external=HELD) -> Checkpoints:
    return Checkpoints(folder / "checkpoints", model, Distribution(8, 1, Cluster()), external)


def save(checkpoints: Checkpoints, step: int) -> None:
    """Saves after the whole image tower has learned something, the text encoder has not."""
    checkpoints.progress.step = step
    encoder(checkpoints.model, "image").assign([step] * 5)
    checkpoints.save({})


def encoder(model, side):
    tower = {"image": model.image_tower, "text": model.text_tower}[side]
    return tower.get_layer("encoder").bias


def names(checkpoints: Checkpoints) -> set[str]:
    return {name for name, _ in tf.train.list_variables(checkpoints.files.newest)}


@pytest.mark.slow
def test_a_checkpoint_leaves_out_what_its_preset_holds_and_restores_the_rest(begun, tmp_path):
    save(begun, 3)
    kept = {name.split("/")[1] for name in names(begun) if name.startswith("text_tower/")}
    variables = begun.model.text_tower.variables
    held = {str(n) for n, v in enumerate(variables) if "/encoder/" in f"/{v.path}"}
    assert len(held) == 2
    assert kept == {str(n) for n in range(len(variables))} - held
    again = CheckpointFiles(begun.folder)
    assert again.external().checksums == HELD.checksums
    encoder(begun.model, "image").assign([0] * 5)
    encoder(begun.model, "text").assign([7] * 5)  # As a preset has brought them.
    for restore in ("restore_model", "restore"):
        other = Checkpoints(again, begun.model, begun.distribution, again.external())
        assert other.read_progress().step == 3
        other.start_phase(["text"])
        getattr(other, restore)()
        assert encoder(begun.model, "image").numpy().tolist() == [3] * 5
        assert encoder(begun.model, "text").numpy().tolist() == [7] * 5


@pytest.mark.slow
def test_what_is_trained_later_is_written_from_then_on(begun, model, tmp_path):
    save(begun, 3)
    kept = len(names(begun))
    again = opened(tmp_path, model)
    again.read_progress()
    again.start_phase([])
    again.restore_model()
    again.limit_external_weights(tmp_path / "best.weights.h5")
    save(again, 6)
    assert again.files.external().checksums == {}
    assert len(names(again)) == kept + 2 - 1  # The encoder, but not what was left out.
    # A phase that freezes it again leaves nothing out: it is not that of the preset any more.
    again.start_phase(["text"])
    again.limit_external_weights(tmp_path / "best.weights.h5")
    save(again, 9)
    assert again.files.external().checksums == {}


@pytest.mark.slow
def test_an_older_checkpoint_that_leaves_something_out_takes_over(begun, model, tmp_path):
    save(begun, 3)
    begun.start_phase([])
    begun.limit_external_weights(tmp_path / "best.weights.h5")
    save(begun, 6)
    (begun.folder / "ckpt-6.index").unlink()
    files = CheckpointFiles(begun.folder)
    external = files.external()
    assert external.checksums == HELD.checksums
    again = Checkpoints(files, model, begun.distribution, external)
    assert again.read_progress().step == 3
    again.restore_model()
    assert encoder(model, "image").numpy().tolist() == [3] * 5


def bias(path) -> list[list[float]]:
    with h5py.File(path) as file:
        found = []
        file.visititems(
            lambda name, item: found.append(item[()].tolist()) if name.endswith("vars/1") else None
        )
    return found


@pytest.mark.slow
def test_best_weights_become_whole_before_their_encoder_is_trained(begun, model, tmp_path):
    best = tmp_path / "best.weights.h5"
    encoder(model, "text").assign([7] * 5)
    encoder(model, "image").assign([1] * 5)
    begun.save_best(best)
    part = begun.folder / BEST_IN_PART
    assert not best.exists()
    with np.load(part) as kept:
        weights = sum(len(t.variables) for t in (model.image_tower, model.text_tower))
        others = len(model.matcher.variables) + len(model.objective.variables)
        assert len(kept) == 1 + weights - 2 + others
    encoder(model, "image").assign([2] * 5)
    begun.start_phase([])
    begun.limit_external_weights(best)
    assert not part.exists()
    assert encoder(model, "image").numpy().tolist() == [2] * 5
    whole = bias(best)
    assert [1] * 5 in whole
    assert [7] * 5 in whole
    begun.save_best(best)
    assert not part.exists()
    assert [2] * 5 in bias(best)


@pytest.mark.slow
def test_best_weights_that_are_damaged_are_named(begun, model, tmp_path):
    begun.save_best(tmp_path / "best.weights.h5")
    part = begun.folder / BEST_IN_PART
    part.write_bytes(part.read_bytes()[:-40])
    encoder(model, "image").assign([2] * 5)
    with pytest.raises(CheckpointError, match=r"best\.npz is damaged: .* Delete"):
        begun.complete_best(tmp_path / "best.weights.h5")
    assert encoder(model, "image").numpy().tolist() == [2] * 5


@pytest.mark.slow
def test_a_full_disk_leaves_the_best_weights_and_the_model_as_they_were(
    begun, model, tmp_path, monkeypatch
):
    begun.save_best(tmp_path / "best.weights.h5")
    part = begun.folder / BEST_IN_PART
    encoder(model, "image").assign([2] * 5)

    def fail(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(begun.bare, "save_weights", fail)
    with pytest.raises(OSError, match="No space left"):
        begun.complete_best(tmp_path / "best.weights.h5")
    assert part.exists()
    assert encoder(model, "image").numpy().tolist() == [2] * 5


@pytest.mark.slow
def test_files_of_presets_are_known_and_nothing_else(tmp_path):
    folder = str(presets.bert(tmp_path / "bert"))
    for encoder in (KerasHubText, KerasHubImage):
        files = encoder(preset=folder).weight_files()
        assert [path.name for path in files] == ["config.json", "model.weights.h5"]
        assert encoder(preset=folder, weights=None).weight_files() == []
        assert encoder(preset="hf://someone/bert").weight_files() == []
    assert KerasApplications(weights="imagenet").weight_files() == []
    assert KerasApplications(weights="own.h5").weight_files()[0].name == "own.h5"


@pytest.fixture
def config(tmp_path):
    """A config that freezes a text encoder of a folder, at first."""
    (tmp_path / "bert").mkdir()
    for name in ("config.json", "model.weights.h5"):
        (tmp_path / "bert" / name).write_text("{}")
    return models.tiny_config(
        tmp_path,
        f"model.text.encoder={{name: keras_hub_text, preset: {tmp_path / 'bert'}}}",
        "train.phases.0.freeze=[text.encoder, image.encoder]",
    )


def test_only_frozen_encoders_that_files_hold_are_left_out(config):
    assert find_external_weights(config).checksums.keys() == {"text"}
    free = config.train.phases[0].model_copy(update={"freeze": ()})
    train = config.train.model_copy(update={"phases": (free, *config.train.phases)})
    assert find_external_weights(config.model_copy(update={"train": train})).checksums == {}


def test_a_training_does_not_go_on_with_another_preset(config, trained, model, tmp_path):
    preset, external = tmp_path / "bert", find_external_weights(config)
    run = Run(config)
    run.records, run._encoder_tokenizer = trained.records, trained.tokenizer
    shutil.copytree(trained.folder.path, run.folder.path)
    for old in ("checkpoints", "config.yaml", "training.json"):
        path = run.folder.path / old
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run.folder.claim(config)
    checkpoints = Checkpoints(
        run.folder.checkpoints, model, Distribution(8, 1, Cluster()), external
    )
    checkpoints.start_phase(["text"])
    save(checkpoints, 3)
    resumed = find_external_weights(config, CheckpointFiles(run.folder.checkpoints))
    assert resumed.checksums == external.checksums
    (preset / "model.weights.h5").write_text("{ }")
    run.folder.check_tokenizer = lambda kept, now: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_xmr.commands._steps.restore_tokenizer", lambda *a: trained.tokenizer)
        says = r"do not store the weights of model\.text\.encoder.*other files now.*Restore"
        with pytest.raises(CheckpointError, match=says):
            run.train()
        shutil.rmtree(preset)
        with pytest.raises(CheckpointError, match="not there now"):
            run.train()


def test_a_finished_run_needs_no_preset(trained, monkeypatch):
    run, model = Run(trained.config), trained.model
    monkeypatch.setattr("keras_xmr.training.train.training_batches", None)
    asked = []
    build = "keras_xmr.runs.loading.build_model"
    monkeypatch.setattr(build, lambda *a, pretrained: asked.append(pretrained) or model)
    run.train()
    assert asked == [False]
