"""Callbacks of a training: validation, logs, watchdog and checkpoints."""

from __future__ import annotations

import csv
import io
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.samplers import Sampler
from keras_xmr.experiments.config.schema import WatchdogOptions
from keras_xmr.experiments.evaluation.results import Evaluation
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.matchers import LogitMatcher
from keras_xmr.metrics import verdict
from keras_xmr.metrics.names import metric_value
from keras_xmr.model.retriever import GRADIENT
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.termination import TerminatedError, TerminationNotice


@dataclass(eq=False)
class StepCallback(keras.callbacks.Callback):
    """A callback that knows the step of the whole training without asking the device.

    Attributes:
        step: Steps done, over all phases.
    """

    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self.step = int(self.model.global_step.numpy())

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.step += 1
        self.on_step(self.step)

    def on_step(self, step: int) -> None:
        """Reacts to a step that has ended.

        Args:
            step: Steps done, over all phases.
        """


class UnreadLogs(keras.callbacks.CallbackList):
    """Passes on the logs of a step as tensors.

    The list of Keras converts all of them to numbers, and so waits for the device, in every step.
    Here a callback that needs a number fetches it.
    """

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


_LOGGER = logging.getLogger(__name__)

_PATIENCE = 3  # Epochs that a model may stay at chance before it is said.


@dataclass(eq=False)
class Validation(StepCallback):
    """Evaluates after epochs, adds the metrics to the logs, and saves the weights when best.

    Args:
        evaluate: Evaluates the model.
        checkpoints: Their progress knows the best value so far.
        monitor: The metric, larger is better.
        every: Epochs between two validations.
        steps_per_epoch: Steps per epoch.
        end: The last step of the training, after which there always is a validation.
        warmup_steps: Number of first steps with another objective. Their weights are validated,
            but not saved as best, so that the best model was trained by its configured losses.
        at_start: Whether the model is validated before its first step, too, so that a training that
            improves nothing ends with the weights that it began with.

    Attributes:
        log_sigma: Uncertainties of the last validation, by side, where embeddings are Gaussian.
    """

    evaluate: Callable[[], Evaluation]
    checkpoints: Checkpoints
    monitor: str
    every: int
    steps_per_epoch: int
    end: int
    warmup_steps: int = 0
    at_start: bool = False
    log_sigma: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    _may_be_at_chance: bool = field(default=True, init=False)

    def begin(self, model: keras.Model) -> None:
        """Validates a model before its first step."""
        self.set_model(model)
        self._keep_best(self.evaluate().matchers[0].metrics.summary[self.monitor])

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if self.step // self.steps_per_epoch % self.every and self.step != self.end:
            return
        try:
            evaluation = self.evaluate()
        except ValueError as error:
            if not self.model.first_nonfinite_step.numpy():
                raise
            # The watchdog has reported it, and is set to continue.
            _LOGGER.warning("step %d: cannot be validated: %s", self.step, error)
            return
        metrics = evaluation.matchers[0].metrics.summary
        self.log_sigma = evaluation.embedded.log_sigma()
        if logs is not None:
            logs |= {f"val_{name}": value for name, value in metrics.items()}
        self._keep_best(metrics[self.monitor])
        if self._may_be_at_chance and self.step >= _PATIENCE * self.steps_per_epoch:
            self._may_be_at_chance = False
            self._compare_with_chance(evaluation)

    def _compare_with_chance(self, evaluation: Evaluation) -> None:
        truth = evaluation.ground_truth
        against_chance = verdict(evaluation.matchers[0].metrics, truth.caption_image)
        if not against_chance.is_better_than_chance:
            _LOGGER.warning(
                "step %d: after %d epochs the validation is not better than chance: RSUM %s, where "
                "a random ranking has %s. Check that each caption belongs to its photo; "
                "where the loss does not fall either, change the learning rate",
                self.step,
                self.step // self.steps_per_epoch,
                metric_value("rsum", against_chance.rsum),
                metric_value("rsum", against_chance.chance),
            )

    def _keep_best(self, value: float) -> None:
        progress = self.checkpoints.progress
        word = ""
        if 0 < self.step <= self.warmup_steps and self.step != self.end:
            word = f", not kept: its losses warm up until step {self.warmup_steps}"
        elif value > progress.best:
            progress.best, progress.best_step = value, self.step
            self.checkpoints.save_best()
            word = ", the best so far"
        shown = metric_value(self.monitor, value)
        _LOGGER.info("step %d: validation %s %s%s", self.step, self.monitor, shown, word)


@dataclass(eq=False)
class EpochMeans(StepCallback):
    """Completes the logs of an epoch that was interrupted, so that they are of all its steps.

    Args:
        checkpoints: Hold the means of the steps before the interruption.
        steps_per_epoch: Steps per epoch.
    """

    checkpoints: Checkpoints
    steps_per_epoch: int
    _logs: dict[str, Any] = field(default_factory=dict, init=False)  # of the last step, not fetched

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        super().on_train_begin(logs)
        self._begin(self.step % self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._logs = logs or {}

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is not None:
            logs |= self._over_all(logs)
        self._begin(0)

    def so_far(self) -> dict[str, float]:
        """Returns the means over the steps of this epoch, by name."""
        return self._over_all(self._logs)

    def _begin(self, done: int) -> None:
        self._before = self.checkpoints.progress.means if done else {}
        self._steps_before = done if self._before else 0
        self._first = self.step

    def _over_all(self, logs: Mapping[str, Any]) -> dict[str, float]:
        steps = self.step - self._first
        share = self._steps_before / max(self._steps_before + steps, 1)
        return {
            name: share * self._before.get(name, 0.0) + (1 - share) * float(value)
            for name, value in logs.items()
        }


@dataclass(eq=False)
class CsvLog(StepCallback):
    """Writes losses and validation metrics of every epoch.

    A resumed training drops the lines of steps that it repeats.

    Args:
        path: The file.
        steps_per_epoch: Steps per epoch.
    """

    path: Path
    steps_per_epoch: int

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        text = self.path.read_text("utf-8") if self.path.exists() else ""
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
        rows = [row for row in rows if int(row["step"]) < self.step]
        values = {name: f"{float(value):.6g}" for name, value in sorted((logs or {}).items())}
        rows.append({"epoch": self.step // self.steps_per_epoch, "step": self.step} | values)
        names = list(dict.fromkeys(name for row in rows for name in row))
        written = io.StringIO()
        writer = csv.DictWriter(written, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic_write(self.path, written.getvalue().encode())


@dataclass(eq=False)
class ProgressBar(StepCallback):
    """One bar for the whole training, with its epoch, pairs (or images) per second and the loss.

    Args:
        sampler: Defines the size of a step and of an epoch.
        epochs: Epochs of the whole training.
        every: Steps between two looks at the loss.
        may_end_early: Whether the training may end before its last epoch.
    """

    sampler: Sampler
    epochs: int
    every: int
    may_end_early: bool = False
    _bar: Progress | None = field(default=None, init=False)
    _shown: dict[str, str] = field(default_factory=dict, init=False)

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        steps, size = self.sampler.steps, self.sampler.batch_size
        self._shown["epoch"] = f"{self.step // steps + 1}/{self.epochs}"
        if self._bar is None:
            name = "training, at most" if self.may_end_early else "training"
            total = self.epochs * steps * size
            self._bar = Progress(name, total, self.sampler.UNIT, initial=self.step * size)
        self._bar.set_postfix(self._shown, refresh=False)

    def on_step(self, step: int) -> None:
        if self._bar is None:
            return
        if step % self.every == 0:
            self._shown["loss"] = f"{float(self.model.last_values.numpy()[0]):.4g}"
            self._shown |= {m.name: f"{float(m.result()):.3f}" for m in self.model.recalls}
            self._bar.set_postfix(self._shown, refresh=False)
        self._bar.update(self.sampler.batch_size)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if self._bar is not None:
            self._bar.make_room()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@dataclass(eq=False)
class TensorBoard(StepCallback):
    """Writes losses by part, learning rate, scale and shift, speed, and after each validation
    its metrics and the distribution of sigma.

    Args:
        folder: Where the events go.
        sampler: Defines the size of a step.
        every: Steps between two entries; before the first there is one per epoch.
        validation: Provides the sigmas of the last validation.
    """

    folder: Path
    sampler: Sampler
    every: int
    validation: Validation | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._writer = tf.summary.create_file_writer(str(self.folder))

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        super().on_train_begin(logs)
        self._since = (self.step, time.perf_counter())

    def on_step(self, step: int) -> None:
        # A training that is shorter than `every` has an entry per epoch.
        is_first_end = step < self.every and step % self.sampler.steps == 0
        if step % self.every and not is_first_end:
            return
        values = self.model.last_values.numpy().tolist()
        step_before, time_before = self._since
        self._since = (step, time.perf_counter())
        seconds = self._since[1] - time_before
        with self._writer.as_default(step):
            for name, value in zip(self.model.watched, values, strict=True):
                tf.summary.scalar(f"train/{name}", value)
            for metric in self.model.recalls:
                tf.summary.scalar(f"train/{metric.name}", float(metric.result()))
            rate = self.model.optimizer.learning_rate
            tf.summary.scalar("train/learning_rate", float(rate))
            seen = (step - step_before) * self.sampler.batch_size
            tf.summary.scalar(f"train/{self.sampler.UNIT}_per_second", seen / seconds)
            matcher = self.model.matcher
            if isinstance(matcher, LogitMatcher):
                tf.summary.scalar("matcher/scale", float(matcher.scale.numpy()))
                tf.summary.scalar("matcher/shift", float(matcher.shift.numpy()))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        metrics = {n: v for n, v in (logs or {}).items() if n.startswith("val_")}
        if self.validation is None or not metrics:
            return
        with self._writer.as_default(self.step):
            for name, value in metrics.items():
                tf.summary.scalar(f"validation/{name.removeprefix('val_')}", value)
            for side, values in self.validation.log_sigma.items():
                tf.summary.histogram(f"validation/{side}_log_sigma", values)
        self._writer.flush()
        self._since = (self.step, time.perf_counter())


class TrainingStoppedError(UserError):
    """The watchdog stopped a training; the message names the step, the reason and the remedy."""


@dataclass(eq=False)
class Watchdog(StepCallback):
    """Stops or warns when a loss is not finite, when sigma collapses, when a loss stays flat.

    It warns of an epoch without any gradient as well.

    Args:
        options: The watched faults, and the action per fault.
        every: Steps between two looks.
        trivial: For each loss that knows it, the value at which it gets stuck, by name.
        checkpoints: The checkpoints that remain when a training is stopped.

    Raises:
        TrainingStoppedError: From within `fit`, where the options say "stop".
    """

    options: WatchdogOptions
    every: int
    trivial: Mapping[str, float]
    checkpoints: Checkpoints
    _reported: set[str] = field(default_factory=set, init=False)
    _flat_since: dict[str, int] = field(default_factory=dict, init=False)

    def on_step(self, step: int) -> None:
        if step % self.every == 0:
            self.inspect()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        # Before the validation, which would fail on numbers that are not finite.
        self.inspect()
        # A mean of norms is 0 only where each of them is.
        if logs and GRADIENT in logs and float(logs[GRADIENT]) == 0:
            self._report(
                "warn",
                GRADIENT,
                f"step {self.step}: the gradient was 0 in all steps of the epoch, so no weight "
                "learns from the losses; look at `objective`, and at `freeze` of the phase",
            )

    def inspect(self) -> None:
        """Looks at the last step.

        Raises:
            TrainingStoppedError: If something is wrong and the options say "stop".
        """
        if step := int(self.model.first_nonfinite_step.numpy()):
            part = self.model.watched[int(self.model.bad_part.numpy())]
            self._report(
                self.options.on_nan,
                part,
                f"step {step}: {part} is not finite.{self._rest(step)}",
            )
        values = dict(zip(self.model.watched, self.model.last_values.numpy().tolist(), strict=True))
        self._look_at_sigma(values)
        self._look_for_flat(values)

    def _rest(self, step: int) -> str:
        """Returns the checkpoint that is kept, and advice, for the first step that is not
        finite.
        """
        remedy = " Lower the learning rate or clip_norm"
        if step == 1:
            remedy = (
                " No weight had changed before: look at the options and weights of the losses, and "
                "for NaN in the data and in the weights that the training began with"
            )
        if self.model.compute_dtype != "float32":
            remedy += ", or train in float32"
        if self.options.on_nan == "warn":
            return remedy
        kept = self.checkpoints.progress.step
        written = f"The checkpoint of step {kept} is kept" if kept else "No checkpoint was written"
        return f" {written}.{remedy}"

    def _look_at_sigma(self, values: dict[str, float]) -> None:
        low, high = np.log(self.options.sigma)
        for side in ("image", "text"):
            value = values.get(f"{side}_log_sigma")
            if value is None or low <= value <= high or math.isnan(value):
                continue
            word, remedy = "exploded", "lower the learning rate"
            if value < low:
                word, remedy = "collapsed", "raise the weight of kl_divergence"
            self._report(
                self.options.on_sigma,
                f"{side} sigma {word}",
                f"step {self.step}: the {side} sigma has {word}: its geometric mean is "
                f"{math.exp(value):.3g}; {remedy}",
            )

    def _look_for_flat(self, values: dict[str, float]) -> None:
        for name, trivial in self.trivial.items():
            since = self._flat_since.setdefault(name, self.step)
            if abs(values[name] - trivial) > self.options.flat_tolerance * abs(trivial):
                del self._flat_since[name]
            elif self.step - since >= self.options.flat_steps:
                self._report(
                    self.options.on_flat,
                    f"{name} flat",
                    f"step {self.step}: {name} has been flat since step {since} at {trivial:.4g}, "
                    "its value when all scores are equal; lower the learning rate, warm "
                    "up, or begin with easier negatives",
                )

    def _report(self, action: str, topic: str, message: str) -> None:
        if action == "stop":
            raise TrainingStoppedError(message)
        if topic not in self._reported:
            self._reported.add(topic)
            _LOGGER.warning("%s", message)


@dataclass(eq=False)
class Checkpoint(StepCallback):
    """Saves every few steps, after every epoch, and on SIGTERM.

    Not where the watchdog finds something wrong.

    The last step of an epoch is saved once, after its validation: a training that is killed while
    it validates does the steps before it again, and then validates as one that was not killed.

    Args:
        checkpoints: Where to save.
        watchdog: Checks before every checkpoint, so that none holds a NaN.
        every: Steps between two checkpoints; 0 for none within an epoch.
        notice: Whether SIGTERM has arrived.
        means: Running means of the logs, saved with each checkpoint.

    Raises:
        TerminatedError: From within `fit`, after SIGTERM.
    """

    checkpoints: Checkpoints
    watchdog: Watchdog
    every: int
    notice: TerminationNotice
    means: EpochMeans

    def on_step(self, step: int) -> None:
        due = self.notice.given or (self.every and step % self.every == 0)
        if due and step % self.means.steps_per_epoch:
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._save()

    def _save(self) -> None:
        self.watchdog.inspect()
        self.checkpoints.progress.step = self.step
        self.checkpoints.save(self.means.so_far())
        if self.notice.given:
            chief = self.checkpoints.distribution.is_chief
            kept = f"the checkpoint of step {self.step} is kept" if chief else "the chief goes on"
            raise TerminatedError(f"terminated: {kept}; run the same command again to resume")
