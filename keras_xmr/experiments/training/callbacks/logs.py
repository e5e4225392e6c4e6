"""Logs of a training: means over epochs, the CSV file, and TensorBoard."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from data_pipelines.samplers import Sampler
from keras_xmr.experiments.training.callbacks.step import StepCallback
from keras_xmr.experiments.training.callbacks.validate import Validation
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.matchers import LogitMatcher
from keras_xmr.utils.files import atomic_write


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
class TensorBoard(StepCallback):
    """Writes losses by term, learning rate, scale and shift, speed, and after each validation
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
