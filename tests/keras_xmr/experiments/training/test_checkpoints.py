"""Checkpoints that are damaged, the older ones that replace them, and the best weights."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import keras
import models
import numpy as np
import pytest
import tensorflow as tf
from finished_runs import finished_run
from interruptions import weights_in

from keras_xmr.experiments.config.train_section import PhaseOptions
from keras_xmr.experiments.runs.cluster import Cluster
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.loading import UnreadableWeightsError, load_trained
from keras_xmr.experiments.training.checkpoints import CheckpointError, Checkpoints
from keras_xmr.experiments.training.distribution import Distribution
from keras_xmr.experiments.training.phases import never_trained
from keras_xmr.model.retriever import Retriever

pytestmark = pytest.mark.slow
FROZEN = PhaseOptions(epochs=1, learning_rate=0.1, freeze=("text.encoder",))
FREE = PhaseOptions(epochs=1, learning_rate=0.1)


@pytest.fixture(scope="module")
def model() -> Retriever:
    model = models.pcme()
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


@pytest.fixture
def checkpoints(model, tmp_path):
    """Opens the checkpoints of a model; of steps 3 and 6 to begin with."""

    def start() -> Checkpoints:
        frozen = never_trained(model, [FROZEN])
        return Checkpoints(tmp_path / "checkpoints", model, Distribution(8, 1, Cluster()), frozen)

    set_bias(model, "text", 7)
    first = start()
    first.start_phase()
    for step in (1, 3, 6):
        save(first, step)
    return start


def save(checkpoints: Checkpoints, step: int) -> None:
    checkpoints.progress.step = step
    set_bias(checkpoints.model, "image", step)
    checkpoints.save({"loss": step / 2})


def bias(model: Retriever, side: str) -> keras.Variable:
    tower = {"image": model.image_tower, "text": model.text_tower}[side]
    return tower.get_layer("encoder").bias


def set_bias(model: Retriever, side: str, value: float) -> None:
    bias(model, side).assign([value] * 5)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


ENDS = ("index", "data-00000-of-00001")
FILES = {f"{name}.{end}" for name in ("ckpt-3", "ckpt-6", "frozen") for end in ENDS}


def test_two_are_kept_under_the_name_that_tensorflow_gives_them(checkpoints):
    folder = checkpoints().folder
    assert names(folder) == FILES | {"checkpoint"}
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "ckpt-6")


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
def test_a_damaged_checkpoint_is_named_and_an_older_one_restored(checkpoints, caplog, file, damage):
    again = checkpoints()
    damage(again.folder / file)
    assert again.read_step() == 3
    (says,) = [message for message in caplog.messages if "ckpt-6 is damaged: " in message]
    assert says.endswith("ckpt-3")
    again.start_phase()
    set_bias(again.model, "text", 0)
    again.restore()
    assert again.progress.means == {"loss": 1.5}
    assert [bias(again.model, s).numpy().tolist() for s in ("image", "text")] == [[3] * 5, [7] * 5]
    save(again, 5)
    assert not [name for name in names(again.folder) if "ckpt-6" in name]
    assert checkpoints().read_step() == 5


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"model_checkpoint_path: 3"])
def test_what_is_read_depends_on_the_checkpoints_alone(checkpoints, content):
    again = checkpoints()
    (again.folder / "checkpoint").unlink()
    if content is not None:
        (again.folder / "checkpoint").write_bytes(content)
    assert again.read_step() == 6
    again.restore_model()
    again.start_phase()
    save(again, 9)
    assert checkpoints().read_step() == 9
    assert not [name for name in names(again.folder) if "ckpt-3" in name]


def test_where_none_can_be_read_there_is_something_to_delete(checkpoints):
    again = checkpoints()
    cut(again.folder / "frozen.index")
    assert again.read_step() == 6
    with pytest.raises(CheckpointError, match=r"frozen is damaged: .* Delete"):
        again.restore_model()
    for path in again.folder.glob("ckpt-*.index"):
        cut(path)
    says = r"(?s)no checkpoint of .* can be read: .*ckpt-6 .*ckpt-3 .*Delete that folder"
    with pytest.raises(CheckpointError, match=says):
        again.read_step()
    for path in again.folder.glob("ckpt-*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="the folder has none"):
        again.read_step()


def test_checkpoints_of_another_model_are_refused(checkpoints):
    towers = models.tower(4, "image", 8), models.tower(3, "caption", 8)
    wide = Retriever(*towers, models.probabilities(), models.pcme_losses()[0])
    folder, frozen = checkpoints().folder, never_trained(wide, [FROZEN])
    other = Checkpoints(folder, wide, Distribution(8, 1, Cluster()), frozen)
    assert other.read_step() == 6
    says = r"ckpt-6 is of another model: (?s:.*)Give this run another name"
    with pytest.raises(CheckpointError, match=says):
        other.restore_model()


def test_weights_that_no_phase_trains_are_written_once(checkpoints, model):
    saved = [name for name, _ in tf.train.list_variables(str(checkpoints().folder / "ckpt-6"))]
    weights = sum(name.startswith("model/") for name in saved)
    whole = len(tf.train.list_variables(str(checkpoints().folder / "frozen"))) - 1 + weights
    parts = (model.image_tower, model.text_tower, model.matcher, model.objective)
    assert whole == sum(len(part.variables) for part in parts) + 4
    assert len(never_trained(model, [FROZEN, FROZEN])) == 2
    assert never_trained(model, [FROZEN, FREE]) == []


def test_the_best_weights_are_written_whole(checkpoints, model, tmp_path):
    kept = checkpoints()
    for step in (1, 2, 3):
        set_bias(model, "image", step)
        kept.progress.best_step = step
        kept.save_best()
    set_bias(model, "image", 9)
    best = tmp_path / "best.weights.h5"
    kept.write_best(best)
    biases = [w.tolist() for w in weights_in(best).values() if w.shape == (5,)]
    assert [3] * 5 in biases
    assert [7] * 5 in biases
    cut(kept.folder / "best" / "ckpt-3.index")
    with pytest.raises(CheckpointError, match=r"best/ckpt-3 is damaged: .* Delete"):
        kept.write_best(best)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file can be larger."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_checkpoint_that_cannot_be_written_leaves_nothing_behind(checkpoints):
    kept = checkpoints()
    kept.start_phase()
    size = (kept.folder / "ckpt-6.index").stat().st_size
    with limited(size), pytest.raises(CheckpointError, match="ckpt-9 cannot be written: "):
        save(kept, 9)
    assert names(kept.folder) == FILES | {"checkpoint"}


def test_weights_that_do_not_fit_are_refused_before_hdf5_writes(checkpoints, tmp_path, monkeypatch):
    path = tmp_path / "best.weights.h5"
    kept = checkpoints()
    kept.save_weights(path)
    before, size = path.read_bytes(), path.stat().st_size
    monkeypatch.setattr(Retriever, "save_weights", lambda *_: pytest.fail("HDF5 would crash"))
    says = r"File too large: .*best\.weights\.h5'"
    with limited(size - 1), pytest.raises(OSError, match=says):
        kept.save_weights(path)
    assert path.read_bytes() == before
    assert names(tmp_path) == {"best.weights.h5", "checkpoints"}


def test_weights_that_cannot_be_read_are_named(checkpoints, tmp_path):
    run = finished_run(tmp_path, "run", 0, 1.0)
    kept = checkpoints()
    kept.save_weights(run.last_weights)
    load_trained(kept.model, load_run(run.path), run)
    np.testing.assert_array_equal(bias(kept.model, "image"), 6)
    cut(run.last_weights)
    with pytest.raises(
        UnreadableWeightsError, match=r"last\.weights\.h5 cannot be read: .* train again"
    ):
        load_trained(kept.model, load_run(run.path), run)
