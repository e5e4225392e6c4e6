"""Checkpoints that are damaged, and older ones that take their place."""

from __future__ import annotations

import os
import resource

import keras
import models
import pytest
import tensorflow as tf
from finished_runs import finished_run

from keras_xmr.model.retriever import Retriever
from keras_xmr.runs.cluster import Cluster
from keras_xmr.runs.folder import load_run
from keras_xmr.runs.loading import WeightsError, load_trained
from keras_xmr.training.checkpoints import CheckpointError, Checkpoints
from keras_xmr.training.distribution import Distribution


@pytest.fixture(scope="module")
def model() -> Retriever:
    model = models.pcme()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


@pytest.fixture
def checkpoints(model, tmp_path):
    """Opens the checkpoints of a model; of steps 3 and 6 to begin with."""

    def start() -> Checkpoints:
        return Checkpoints(tmp_path / "checkpoints", model, Distribution(8, 1, Cluster()))

    first = start()
    first.start_phase()
    for step in (1, 3, 6):
        save(first, step)
    return start


def save(checkpoints: Checkpoints, step: int) -> None:
    checkpoints.progress.step = step
    checkpoints.model.text_tower.get_layer("encoder").bias.assign([step] * 5)
    checkpoints.save({"loss": step / 2})


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


FILES = {f"ckpt-{n}.{end}" for n in (3, 6) for end in ("index", "json", "data-00000-of-00001")}


@pytest.mark.slow
def test_weights_that_do_not_fit_are_refused_before_hdf5_writes(checkpoints, tmp_path, monkeypatch):
    path = tmp_path / "best.weights.h5"
    kept = checkpoints()
    kept.save_weights(path)
    before, size = path.read_bytes(), path.stat().st_size
    monkeypatch.setattr(Retriever, "save_weights", lambda *_: pytest.fail("HDF5 would crash"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*best\.weights\.h5'"):
            kept.save_weights(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert names(tmp_path) == {"best.weights.h5", "checkpoints"}


@pytest.mark.slow
def test_two_are_kept_under_the_name_that_tensorflow_gives_them(checkpoints):
    folder = checkpoints().folder
    assert names(folder) == FILES | {"checkpoint", "variables.json"}
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "ckpt-6")
    assert checkpoints().read_progress().step == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("ckpt-6.index", lambda path: path.unlink()),
        ("ckpt-6.index", cut),
        ("ckpt-6.index", lambda path: path.write_bytes(b"")),
        ("ckpt-6.data-00000-of-00001", lambda path: path.unlink()),
        ("ckpt-6.data-00000-of-00001", cut),
        ("ckpt-6.data-00000-of-00001", flip),
    ],
)
def test_a_damaged_checkpoint_gives_way_to_an_older_one(checkpoints, caplog, file, damage):
    again = checkpoints()
    damage(again.folder / file)
    assert again.read_progress().step == 3
    (says,) = [message for message in caplog.messages if "ckpt-6 is damaged: " in message]
    assert says.endswith("ckpt-3")
    assert again.means() == {"loss": 1.5}
    again.start_phase()
    again.restore()
    assert again.model.text_tower.get_layer("encoder").bias.numpy().tolist() == [3] * 5
    save(again, 5)
    assert not [name for name in names(again.folder) if "ckpt-6" in name]
    assert checkpoints().read_progress().step == 5


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"model_checkpoint_path: 3"])
def test_what_is_read_depends_on_the_checkpoints_alone(checkpoints, content):
    again = checkpoints()
    for name in ("checkpoint", "variables.json"):
        (again.folder / name).unlink()
        if content is not None:
            (again.folder / name).write_bytes(content)
    assert again.read_progress().step == 6
    again.restore_model()
    again.start_phase()
    save(again, 9)
    assert checkpoints().read_progress().step == 9


@pytest.mark.slow
def test_where_none_can_be_read_there_is_something_to_delete(checkpoints):
    again = checkpoints()
    for path in again.folder.glob("ckpt-*.index"):
        cut(path)
    says = r"(?s)no checkpoint of .* can be read: .*ckpt-6 .*ckpt-3 .*Delete that folder"
    with pytest.raises(CheckpointError, match=says):
        again.read_progress()
    for path in again.folder.glob("ckpt-*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="the folder has none"):
        again.read_progress()


@pytest.mark.slow
def test_the_disk_has_a_checkpoint_before_it_is_named(checkpoints, monkeypatch):
    again, synced = checkpoints(), []
    monkeypatch.setattr(
        "keras_xmr.training.checkpoints.sync", lambda path: synced.append(path.name)
    )
    write = "keras_xmr.training.checkpoints.atomic_write"
    monkeypatch.setattr(write, lambda path, content: synced.append(path.name))
    again.start_phase()
    save(again, 9)
    files = ["ckpt-9.data-00000-of-00001", "ckpt-9.index"]
    assert synced[:2] == ["variables.json", "ckpt-9.json"]
    assert sorted(synced[2:4]) == files
    assert synced[4:] == ["checkpoints", "checkpoint"]


@pytest.mark.slow
def test_weights_are_written_aside_under_a_name_of_this_process_alone(checkpoints, monkeypatch):
    asides = []
    place = "keras_xmr.utils.files.atomic_replace"
    monkeypatch.setattr(place, lambda aside, path: asides.append(aside))
    again = checkpoints()
    again.save_weights(again.folder / "best.weights.h5")
    assert asides[0].name.startswith(f".best.weights.h5.{os.getpid()}.")
    assert not list(again.folder.glob(".*"))


@pytest.mark.slow
def test_weights_that_cannot_be_read_are_named(checkpoints, tmp_path):
    run = finished_run(tmp_path, "run", 0, 1.0)  # Without checksums, as trainings of long ago.
    again = checkpoints()
    again.save_weights(run.last_weights)
    load_trained(again.model, load_run(run.path), run)
    cut(run.last_weights)
    with pytest.raises(WeightsError, match=r"last\.weights\.h5 cannot be read: .* train again"):
        load_trained(again.model, load_run(run.path), run)
