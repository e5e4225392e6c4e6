"""Training: phases, resuming, checkpoints, logs, and the watchdog."""

from __future__ import annotations

import csv
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import keras
import models
import numpy as np
import pytest
import tensorflow as tf
from command_line import PYTHONPATH
from interruptions import last_weights, terminated, weights_in
from pydantic import BaseModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import RECURRENT, copy_of

from data_pipelines.shards import RecordsError
from keras_xmr import losses
from keras_xmr.commands import train
from keras_xmr.experiments.build import build_model, build_tokenizer
from keras_xmr.experiments.config.loader import dump_config
from keras_xmr.experiments.config.train_section import PhaseOptions, WatchdogOptions
from keras_xmr.experiments.evaluation.split_evaluation import EmbeddedSplit
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training import callbacks
from keras_xmr.experiments.training.checkpoints import Progress
from keras_xmr.experiments.training.distribution import make_strategy
from keras_xmr.experiments.training.phases import (
    freeze,
    learning_rate_factors,
    model_parts,
    phase_schedule,
)
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import evaluate_scores
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.registry import Choice
from keras_xmr.utils.errors import ConfigError, UserError

TWO_PHASES = (
    "train.phases=[{epochs: 1, learning_rate: 1e-2, freeze: [image.encoder, text.encoder]},"
    " {epochs: 1, learning_rate: 1e-3, learning_rates: {image.encoder: 1e-4}}]"
)


@pytest.fixture(scope="module")
def records(trained):
    """The records of the tiny scenes, shared by all runs."""
    return trained.config.data.records


@pytest.fixture
def start(records, tmp_path):
    """Starts a run; of the same name, it goes on."""

    def start(*overrides: str) -> Experiment:
        return Experiment(models.tiny_config(tmp_path, f"data.records={records}", *overrides))

    return start


EAGER_MAIN = """
import tensorflow as tf
from keras_xmr.__main__ import main
tf.config.run_functions_eagerly(True)
main()
"""


def kill_at(run: Experiment, checkpoint: str, folder: Path) -> None:
    """Trains in another process that is killed after a checkpoint."""
    path = folder / "killed.yaml"
    path.write_text(dump_config(run.config), "utf-8")
    command = [sys.executable, "-c", EAGER_MAIN, "train", "--config", str(path)]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
    newest = run.folder.checkpoints / "checkpoint"
    deadline = time.monotonic() + 600
    while not (newest.exists() and checkpoint in newest.read_text()):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline, f"it never came to {checkpoint}"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_that_was_stopped_ends_as_one_that_was_not(start, monkeypatch, tmp_path, caplog):
    # Five steps an epoch: it is killed in the middle of the first phase, and ended in the second.
    # Without graphs, which take longer than so few steps; test_torture.py has them.
    overrides = (*models.POINTS, TWO_PHASES, "train.batch_size=16")
    whole, broken = (start(f"name={name}", *overrides) for name in ("whole", "broken"))
    whole.train()
    kill_at(broken, "ckpt-3", tmp_path)
    tf.get_logger().addHandler(caplog.handler)
    terminated(start("name=broken", *overrides), 7, monkeypatch)
    newest = tf.train.latest_checkpoint(str(broken.folder.checkpoints))
    assert newest.endswith("ckpt-8"), "the step after the signal"
    broken.train()
    tf.get_logger().removeHandler(caplog.handler)
    assert "Value in checkpoint could not be found" not in caplog.text
    assert len(last_weights(whole)) > 20
    for name in ("last.weights.h5", "best.weights.h5"):
        expected, found = (weights_in(run.folder.path / name) for run in (whole, broken))
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            np.testing.assert_array_equal(found[key], values, err_msg=f"{name}: {key}")
    summary = [json.loads(run.folder.done.read_bytes()) for run in (whole, broken)]
    # Files name the layers as Keras counts them, so those of one process differ.
    assert [s.pop("sha256").keys() for s in summary] == [
        {"best.weights.h5", "last.weights.h5", "vocabulary.txt"}
    ] * 2
    assert summary[0] == summary[1]
    assert summary[0]["steps"] == 10
    logs = [list(csv.DictReader(run.folder.training_log.open())) for run in (whole, broken)]
    assert [row["step"] for row in logs[1]] == ["5", "10"]
    for one, other in zip(*logs, strict=True):
        assert {k: float(v) for k, v in other.items()} == pytest.approx(
            {k: float(v) for k, v in one.items()}, rel=2e-5
        )


def test_the_last_step_of_an_epoch_is_saved_after_its_validation():
    """A training that is killed while it validates validates again."""
    saved = []
    checkpoints = SimpleNamespace(progress=Progress(), save=lambda means: saved.append(means))
    watchdog = SimpleNamespace(inspect=lambda: None)
    means = SimpleNamespace(steps_per_epoch=3, so_far=lambda: checkpoints.progress.step)
    notice = SimpleNamespace(given=False)
    checkpoint = callbacks.Checkpoint(checkpoints, watchdog, 1, notice, means)
    for batch in range(3):
        checkpoint.on_train_batch_end(batch)
    assert saved == [1, 2]
    checkpoint.on_epoch_end(0)
    assert saved == [1, 2, 3]
    # In an update, whose epochs are short, the last one is saved.
    checkpoint.end, checkpoint.every = 15, 4
    for epoch in range(1, 5):
        for batch in range(3):
            checkpoint.on_train_batch_end(batch)
        checkpoint.on_epoch_end(epoch)
        assert checkpoints.progress.step == 3 * (epoch + 1)
    assert saved == [1, 2, 3, 4, 8, 12, 15]


def test_everything_is_logged(trained):
    run = trained
    with run.folder.training_log.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["val_t2i_recall_10"]) <= 1
    events = EventAccumulator(str(run.folder.logs))
    events.Reload()
    tensors = set(events.Tags()["tensors"])
    for name in (
        "train/loss",
        "train/soft_contrastive/positive",
        "train/learning_rate",
        "train/pairs_per_second",
        "train/gradient_norm",
        "matcher/scale",
        "matcher/shift",
        "validation/rsum",
        "validation/text_log_sigma",
    ):
        assert name in tensors
    versions = json.loads(run.folder.versions.read_bytes())
    assert versions["seed"] == 0
    assert versions["versions"]["tensorflow"] == tf.__version__
    assert run.folder.best_weights.exists()
    assert not list(run.folder.path.glob(".*"))


def test_another_config_of_the_same_name_is_refused(trained, start, tmp_path):
    copy_of(trained, tmp_path)
    with pytest.raises(ConfigError, match=r"train\.batch_size: 8 there, 4 now"):
        start(RECURRENT, "train.batch_size=4").train()
    start(RECURRENT, "evaluation.splits=[val]").train()


def test_a_model_that_cannot_be_built_leaves_its_name_free(start, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no such model")

    run = start()
    monkeypatch.setattr("keras_xmr.experiments.training.train.build_model", fail)
    with pytest.raises(ValueError, match="no such model"):
        run.train()
    assert not run.folder.path.exists()


@pytest.mark.parametrize("mode", ["evaluate", "export"])
def test_steps_before_training_say_so(start, mode):
    with pytest.raises(UserError, match="no finished training; run the command `train`"):
        getattr(start(), mode)()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_nan_stops_the_run_and_keeps_the_last_good_checkpoint(start, monkeypatch):
    # Nobody looks before the end of the epoch, where the validation must not come first.
    overrides = ("train.clip_norm=null", "train.log_steps=50", "train.checkpoint_steps=6")
    overrides += (*models.POINTS, "train.phases.0.epochs=1")
    run = start(*overrides)
    original = callbacks.Checkpoint.on_step

    def poison(self, number):
        original(self, number)
        if number == 7:
            layer = self.model.text_tower.get_layer("encoder")
            layer.set_weights([np.full_like(w, np.nan) for w in layer.get_weights()])

    monkeypatch.setattr(callbacks.Checkpoint, "on_step", poison)
    says = r"step 8: loss is not finite\. The checkpoint of step 6 is kept"
    with pytest.raises(callbacks.TrainingStoppedError, match=says):
        run.train()
    newest = tf.train.latest_checkpoint(str(run.folder.checkpoints))
    assert newest.endswith("ckpt-6")


def noted(first_nonfinite_step: int) -> SimpleNamespace:
    """Stands for a model: what it notes of its training."""
    return SimpleNamespace(
        watched=["loss"],
        compute_dtype="float32",
        first_nonfinite_step=tf.constant(first_nonfinite_step),
        bad_number=tf.constant(0),
        last_values=tf.constant([np.nan]),
    )


_LOWER = "Lower the learning rate or clip_norm"
_NOTHING = "No weight had changed before: look at the options and weights of the losses"


@pytest.mark.parametrize(
    ("on_nan", "kept", "step", "dtype", "says"),
    [
        ("stop", 6, 7, "float32", f"finite. The checkpoint of step 6 is kept. {_LOWER}"),
        ("stop", 0, 1, "float32", f"No checkpoint was written. {_NOTHING}"),
        ("warn", 6, 7, "bfloat16", f"finite. {_LOWER}, or train in float32"),
    ],
)
def test_nan_is_told_with_what_is_kept_and_what_helps(on_nan, kept, step, dtype, says, caplog):
    checkpoints = SimpleNamespace(progress=Progress(kept))
    watchdog = callbacks.Watchdog(WatchdogOptions(on_nan=on_nan), 50, {}, checkpoints)
    model = noted(step)
    model.compute_dtype = dtype
    watchdog.set_model(model)
    stops = pytest.raises(callbacks.TrainingStoppedError) if on_nan == "stop" else nullcontext()
    with stops as stopped:
        watchdog.on_epoch_end(0)
    said = str(stopped.value) if stopped else caplog.text
    assert says in said
    assert ("float32" in said) == (dtype != "float32")
    assert ("learning rate" in said) == (step > 1)


def evaluation_of(metrics):
    """Stands for an evaluation with these metrics."""
    return SimpleNamespace(
        matchers=[SimpleNamespace(metrics=metrics)],
        embedded=EmbeddedSplit({}, {}),
        ground_truth=SimpleNamespace(caption_image=None),
    )


def test_where_nan_is_only_warned_of_a_validation_is_left_out(caplog):
    def evaluate():
        raise ValueError("a score of query 0 is NaN")

    validation = callbacks.Validation(evaluate, None, "rsum", 1, 10, 20)
    validation.step = 10
    validation.set_model(noted(7))
    validation.on_epoch_end(0, {})
    assert "step 10: cannot be validated: a score of query 0 is NaN" in caplog.text
    validation.set_model(noted(0))
    with pytest.raises(ValueError, match="a score of query 0 is NaN"):
        validation.on_epoch_end(0, {})


@pytest.mark.parametrize("learns", [False, True])
def test_a_validation_at_chance_is_told_after_the_first_epochs(learns, caplog):
    """As where captions stand with the wrong photos: the loss falls all the same."""
    count = 60
    right = np.eye(count, dtype=bool)
    scores = np.random.default_rng(0).normal(size=(count, count)) + 5 * learns * right
    judgements = Judgements.from_pairs(np.arange(count), count)
    metrics = evaluate_scores(scores, judgements)
    evaluation = evaluation_of(metrics)
    evaluation.ground_truth.caption_image = np.arange(count)
    checkpoints = SimpleNamespace(progress=Progress(), save_best=lambda: None)
    validation = callbacks.Validation(lambda: evaluation, checkpoints, "rsum", 1, 10, 90)
    for step in range(10, 100, 10):
        validation.step = step
        validation.on_epoch_end(0, {})
        told = [text for text in caplog.messages if "better than chance" in text]
        assert len(told) == (step >= 30 and not learns)
    if told:
        assert told[0].startswith("step 30: after 3 epochs the validation is not better than")
        assert "each caption belongs to its photo" in told[0]


def test_what_a_warm_up_has_trained_is_not_the_best(caplog, monkeypatch):
    """Or a row would be named for a loss that did not train it."""
    fine = SimpleNamespace(is_better_than_chance=True)
    monkeypatch.setattr(
        "keras_xmr.experiments.training.callbacks.validate.verdict", lambda *_: fine
    )
    caplog.set_level("INFO", "keras_xmr")
    kept = []
    checkpoints = SimpleNamespace(progress=Progress(), save_best=lambda: kept.append("best"))
    values = iter([90.0, 50.0, 60.0])

    def evaluate():
        return evaluation_of(SimpleNamespace(summary={"rsum": next(values)}))

    validation = callbacks.Validation(evaluate, checkpoints, "rsum", 1, 10, 30, 10)
    for step in (10, 20, 30):
        validation.step = step
        validation.on_epoch_end(0, {})
    says = "step 10: validation rsum 90.0, not kept: its losses warm up until step 10"
    assert says in caplog.text
    assert "step 20: validation rsum 50.0, the best so far" in caplog.text
    assert kept == ["best", "best"]
    assert checkpoints.progress.best_step == 30
    unchanged = callbacks.Validation(evaluate, checkpoints, "rsum", 1, 10, 10, 10)
    checkpoints.progress = Progress()
    values = iter([0.4])
    unchanged.step = 10
    unchanged.on_epoch_end(0, {})
    assert checkpoints.progress.best == 0.4  # A training that ends in its warm-up has a model, too.


@pytest.mark.slow
def test_a_damaged_record_is_named(start, records, tmp_path, monkeypatch):
    # The first batch is enough.
    monkeypatch.setattr(Retriever, "fit", lambda self, batches, **_: next(iter(batches)))
    copy = shutil.copytree(records, tmp_path / "damaged")
    for shard in copy.glob("train-*.tfrecord"):
        content = bytearray(shard.read_bytes())
        content[40] ^= 1
        shard.write_bytes(content)
    with pytest.raises(RecordsError, match=r"^.*train-\d+.tfrecord is damaged in the record of"):
        start(f"data.records={copy}").train()


class Watched:
    """A watchdog that looks at a model after every second step, and what the steps show it."""

    def __init__(self, **options: object) -> None:
        progress = SimpleNamespace(progress=Progress())
        options = WatchdogOptions(**options)
        self.watchdog = callbacks.Watchdog(options, 2, {"soft_contrastive": 0.5}, progress)
        self.model = noted(0)
        self.model.watched = ["soft_contrastive", "image_log_sigma", "text_log_sigma"]
        self.watchdog.set_model(self.model)

    def steps(self, count: int, **values: float) -> None:
        """Steps that end with some values; all others are 0."""
        self.model.last_values = tf.constant([values.get(n, 0.0) for n in self.model.watched])
        for _ in range(count):
            self.watchdog.on_train_batch_end(0)


@pytest.mark.parametrize(("sigma", "word"), [(0.05, "collapsed"), (20.0, "exploded")])
def test_collapsed_and_exploded_sigma_is_named(sigma, word, caplog):
    watched = Watched(on_sigma="stop", sigma=(0.1, 10.0))
    watched.steps(1, image_log_sigma=np.log(sigma))
    says = f"step 2: the image sigma has {word}: its geometric mean is {sigma:g}"
    with pytest.raises(callbacks.TrainingStoppedError, match=says):
        watched.steps(1, image_log_sigma=np.log(sigma))
    both = dict.fromkeys(("image_log_sigma", "text_log_sigma"), np.log(sigma))
    Watched(sigma=(0.1, 10.0)).steps(8, **both)
    assert sum(word in message for message in caplog.messages) == 2  # once each


def test_flat_loss_is_named():
    watched = Watched(flat_steps=4, on_flat="stop", flat_tolerance=0.2)
    for count, value in ((6, 0.65), (4, 0.55), (2, 0.65), (4, 0.45)):
        watched.steps(count, soft_contrastive=value)
    says = "step 18: soft_contrastive has been flat since step 14 at 0.5"
    with pytest.raises(callbacks.TrainingStoppedError, match=says):
        watched.steps(2, soft_contrastive=0.45)


def test_an_epoch_without_a_gradient_is_told(caplog):
    watched = Watched()
    watched.steps(3)
    for _ in range(2):
        watched.watchdog.on_epoch_end(0, {"loss": 0.4, "gradient_norm": np.float32(0)})
    assert caplog.messages == [
        "step 3: the gradient was 0 in all steps of the epoch, so no weight learns from the "
        "losses; look at `objective`, and at `freeze` of the phase"
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_frozen_parts_do_not_move(trained):
    tokenizer = build_tokenizer(trained.config, trained.records)
    model = build_model(trained.config, trained.records, tokenizer, pretrained=True)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    x = {"image": pixels, "caption": tokenizer(["a red circle", "two", "a square", "blue"])}
    moved = {}
    for names in (("image.encoder", "text.encoder"), ()):
        freeze(model, names)
        model.compile(keras.optimizers.SGD(0.1))
        parts = {name: layers[0] for name, layers in model_parts(model).items()}
        before = {name: part.get_weights() for name, part in parts.items()}
        model.train_on_batch(x, {"image_id": np.arange(4)})
        for name, part in parts.items():
            changes = zip(before[name], part.weights, strict=True)
            # Statistics of batches move at any rate, unless they are frozen.
            moved[name] = {w.name for b, w in changes if np.abs(b - w.numpy()).max() > 0}
        for encoder in ("image.encoder", "text.encoder"):
            assert bool(moved[encoder]) == (encoder not in names)
        assert moved["image.head"]
    assert "moving_mean" in moved["image.encoder"]


@pytest.mark.slow
def test_parts_have_factors_and_inner_parts_count():
    model = models.pcme()
    phase = PhaseOptions(
        epochs=1, learning_rate=1e-2, learning_rates={"image": 1e-3, "image.encoder": 1e-4}
    )
    factors = {id(v): factor for v, factor in learning_rate_factors(model, phase)}
    by_part = {
        name: {round(factors.get(id(v), 1.0), 6) for layer in layers for v in layer.weights}
        for name, layers in model_parts(model).items()
    }
    assert by_part["image.encoder"] == {0.01}
    assert by_part["image.head"] == {0.1}
    assert by_part["text"] == {1.0}
    freeze(model, ("text", "image.encoder"))
    left = {id(v) for v in model.trainable_variables}
    expected = model.image_tower.get_layer("head").weights + model.matcher.weights
    assert left == {id(v) for v in expected}
    freeze(model, ())
    assert len(model.trainable_variables) == len(models.pcme().trainable_variables) > len(left)


def rates(**options):
    phase = PhaseOptions(learning_rate=0.1, **options)
    schedule = phase_schedule(phase, steps_per_epoch=10)
    return np.array([float(schedule(step)) for step in range(10 * phase.epochs)])


def test_schedules():
    np.testing.assert_allclose(rates(epochs=2, schedule="constant"), 0.1)
    cosine = rates(epochs=2, warmup_epochs=0.5)
    np.testing.assert_allclose(cosine[:5], 0.1 * np.arange(1, 6) / 6, rtol=1e-5)
    assert np.argmax(cosine) == 5
    assert (np.diff(cosine[5:]) < 0).all()
    assert cosine[-1] < 0.002
    longer = rates(epochs=2, cosine_epochs=10)
    np.testing.assert_allclose(longer, 0.05 * (1 + np.cos(np.pi * np.arange(20) / 100)), rtol=1e-5)
    stepped = rates(epochs=3, schedule="step", decay_epochs=[2, 1], decay_factor=0.5)
    np.testing.assert_allclose(stepped, np.repeat([0.1, 0.05, 0.025], 10), rtol=1e-5)


def test_devices_must_share_a_batch_evenly(monkeypatch):
    devices = [type("Device", (), {"name": f"/cpu:{n}"}) for n in range(3)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices)
    with pytest.raises(UserError, match=r"train\.batch_size: 16 .* 3 devices; 15 or 18 can"):
        make_strategy(16)
    with pytest.raises(UserError, match=r"train\.devices: 4 requested, but only"):
        make_strategy(16, 4)


@pytest.fixture
def validated(monkeypatch):
    """Notes the options of each part that is validated."""
    options, validate = [], vars(BaseModel)["model_validate"].__func__

    def note(cls, values, **more):
        options.append((cls.part, values))
        return validate(cls, values, **more)

    monkeypatch.setattr(Choice, "model_validate", classmethod(note))
    return options


@pytest.mark.slow
def test_a_command_validates_and_builds_a_loss_once_and_shows_metrics(
    start, monkeypatch, tmp_path, validated
):
    shown, built, build = [], [], losses.Triplet.__init__
    monkeypatch.setattr(
        "keras_xmr.utils.progress.Progress.set_postfix",
        lambda self, values, **_: shown.append(values),
    )

    @functools.wraps(build)
    def note(self, **options):
        built.append(options)
        build(self, **options)

    monkeypatch.setattr(losses.Triplet, "__init__", note)
    chosen = "train.metrics=[recall, {name: recall, k: 3, direction: image_to_text}]"
    loss = "objective=[{name: triplet, margin: 0.3}]"
    run = start(*models.POINTS, loss, chosen, "train.log_steps=1", "train.phases.0.epochs=1")
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(run.config), "utf-8")
    validated.clear()
    train.run(Namespace(config=str(path), set=[]))
    assert [values["margin"] for part, values in validated if part is losses.Triplet] == [0.3]
    assert [options["margin"] for options in built] == [0.3]
    names = ("recall_1", "recall_3_image_to_text")
    assert len(shown) > 1
    for values in shown:
        assert list(values) == ["epoch", "loss", *names]
        assert all(0.0 <= float(values[name]) <= 1.0 for name in names)
    events = EventAccumulator(str(run.folder.logs))
    events.Reload()
    for name in names:
        values = [tf.make_ndarray(e.tensor_proto) for e in events.Tensors(f"train/{name}")]
        assert len(values) == len(events.Tensors("train/loss"))
        assert all(0.0 <= value <= 1.0 for value in values)
    # Three of the batch are hit more often than one.
    first, third = (events.Tensors(f"train/{name}")[-1].tensor_proto for name in names)
    assert tf.make_ndarray(third) >= tf.make_ndarray(first) * 0.5
