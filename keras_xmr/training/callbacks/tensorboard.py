"""Scalars and histograms for TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path

import tensorflow as tf

from data_pipelines.samplers import Sampler
from keras_xmr.matchers import LogitMatcher
from keras_xmr.training.callbacks.base import StepCallback
from keras_xmr.training.callbacks.validation import Validation


class TensorBoard(StepCallback):
    """Writes losses by part, learning rate, scale and shift, speed, and after each validation
    its metrics and the distribution of sigma.

    Args:
        folder: Where the events go.
        sampler: Says what a step holds.
        every: Steps between two entries.
        validation: Has the metrics and the embeddings of the last validation.
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
