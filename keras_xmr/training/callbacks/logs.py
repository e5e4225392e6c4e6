"""Logs of a training: epoch means, CSV, progress bar and TensorBoard."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from data_pipelines.files import atomic_write
from data_pipelines.progress import Progress
from data_pipelines.samplers import Sampler
from keras_xmr.matchers import LogitMatcher
from keras_xmr.training.callbacks.base import StepCallback
from keras_xmr.training.callbacks.validation import Validation
from keras_xmr.training.checkpoints import Checkpoints


@dataclass(eq=False)
class EpochMeans(StepCallback):
    """Makes the logs of an epoch that was interrupted those of all its steps.

    Args:
        checkpoints: Hold the means of the steps before the interruption.
        steps_per_epoch: Steps per epoch.
    """

    checkpoints: Checkpoints
    steps_per_epoch: int
    _logs: dict[str, Any] = field(default_factory=dict, init=False)  # of the last step, not fetched

    def on_train_begin(self, logs: dict | None = None) -> None:
        super().on_train_begin(logs)
        self._begin(self.step % self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._logs = logs or {}

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if logs is not None:
            logs |= self._over_all(logs)
        self._begin(0)

    def so_far(self) -> dict[str, float]:
        """The means over the steps of this epoch, by name."""
        return self._over_all(self._logs)

    def _begin(self, done: int) -> None:
        self._before = self.checkpoints.means() if done else {}
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

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        rows = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if int(row["step"]) < self.step]
        row = {"epoch": self.step // self.steps_per_epoch, "step": self.step}
        row |= {name: f"{float(value):.6g}" for name, value in sorted((logs or {}).items())}
        rows.append({name: str(value) for name, value in row.items()})
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic_write(self.path, text.getvalue().encode())


@dataclass(eq=False)
class ProgressBar(StepCallback):
    """One bar per epoch, with pairs (or images) per second and the loss.

    Args:
        sampler: Defines the size of a step and of an epoch.
        epochs: Epochs of the whole training.
        every: Steps between two looks at the loss.
    """

    sampler: Sampler
    epochs: int
    every: int

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        steps, size = self.sampler.steps, self.sampler.batch_size
        name = f"epoch {self.step // steps + 1}/{self.epochs}"
        done = self.step % steps * size
        self._bar = Progress(name, steps * size, self.sampler.UNIT, initial=done)

    def on_step(self, step: int) -> None:
        if step % self.every == 0:
            loss = float(self.model.last_values.numpy()[0])
            self._bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        self._bar.update(self.sampler.batch_size)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._bar.close()


class TensorBoard(StepCallback):
    """Writes losses by part, learning rate, scale and shift, speed, and after each validation
    its metrics and the distribution of sigma.

    Args:
        folder: Where the events go.
        sampler: Defines the size of a step.
        every: Steps between two entries.
        validation: Provides the metrics and sigmas of the last validation.
    """

    def __init__(
        self, folder: Path, sampler: Sampler, every: int, validation: Validation | None
    ) -> None:
        super().__init__()
        self.sampler = sampler
        self.every = every
        self.validation = validation
        self._writer = tf.summary.create_file_writer(str(folder))

    def on_train_begin(self, logs: dict | None = None) -> None:
        super().on_train_begin(logs)
        self._since = (self.step, time.perf_counter())

    def on_step(self, step: int) -> None:
        if step % self.every:
            return
        values = self.model.last_values.numpy().tolist()
        step_before, time_before = self._since
        self._since = (step, time.perf_counter())
        seconds = self._since[1] - time_before
        with self._writer.as_default(step):
            for name, value in zip(self.model.watched, values, strict=True):
                tf.summary.scalar(f"train/{name}", value)
            rate = self.model.optimizer.learning_rate
            tf.summary.scalar("train/learning_rate", float(rate))
            seen = (step - step_before) * self.sampler.batch_size
            tf.summary.scalar(f"train/{self.sampler.UNIT}_per_second", seen / seconds)
            matcher = self.model.matcher
            if isinstance(matcher, LogitMatcher):
                tf.summary.scalar("matcher/scale", float(matcher.scale.numpy()))
                tf.summary.scalar("matcher/shift", float(matcher.shift.numpy()))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.validation is None or self.validation.last_step != self.step:
            return
        with self._writer.as_default(self.step):
            for name, value in self.validation.metrics.items():
                tf.summary.scalar(f"validation/{name}", value)
            for side, values in self.validation.log_sigma.items():
                tf.summary.histogram(f"validation/{side}_log_sigma", values)
        self._writer.flush()
        self._since = (self.step, time.perf_counter())
