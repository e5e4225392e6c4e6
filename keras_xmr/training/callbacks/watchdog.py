"""Watches a training for the ways in which it goes wrong."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

import keras
import numpy as np

from data_pipelines.errors import UserError
from keras_xmr.config.schema import WatchdogOptions
from keras_xmr.model.retriever import GRADIENT
from keras_xmr.training.callbacks.base import StepCallback
from keras_xmr.training.checkpoints import Checkpoints

_LOGGER = logging.getLogger(__name__)


class TrainingStoppedError(UserError):
    """The watchdog stopped a training; the message says at which step, why, and what helps."""


@dataclass(eq=False)
class Watchdog(StepCallback):
    """Stops or warns when a loss is not finite, when sigma collapses, when a loss stays flat.

    It warns of an epoch without any gradient as well.

    Args:
        options: Which faults are watched for, and the action on each.
        every: Steps between two looks.
        positives: Which pairs of a batch match, boolean (images, captions).
        checkpoints: The checkpoints that remain when a training is stopped.

    Raises:
        TrainingStoppedError: From within `fit`, where the options say "stop".
    """

    options: WatchdogOptions
    every: int
    positives: np.ndarray
    checkpoints: Checkpoints
    _reported: set[str] = field(default_factory=set, init=False)
    _flat_since: dict[str, int] = field(default_factory=dict, init=False)
    _trivial: dict[str, float] | None = field(default=None, init=False)

    def on_train_begin(self, logs: dict | None = None) -> None:
        super().on_train_begin(logs)
        if self._trivial is None and self.options.flat_steps:
            scores = keras.ops.zeros(self.positives.shape)
            relations = {"positives": keras.ops.convert_to_tensor(self.positives)}
            self._trivial = self.model.objective.trivial_values(scores, relations)

    def on_step(self, step: int) -> None:
        if step % self.every == 0:
            self.look()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        # Before the validation, which would fail on numbers that are not finite.
        self.look()
        # A mean of norms is 0 only where each of them is.
        if logs and GRADIENT in logs and float(logs[GRADIENT]) == 0:
            self._report(
                "warn",
                GRADIENT,
                f"step {self.step}: the gradient was 0 in all steps of the epoch, so no weight "
                "learns from the losses; look at `objective`, and at `freeze` of the phase",
            )

    def look(self) -> None:
        """Looks at the last step.

        Raises:
            TrainingStoppedError: If something is wrong and the options say "stop".
        """
        if step := int(self.model.first_nonfinite_step.numpy()):
            part = self.model.watched[int(self.model.bad_part.numpy())]
            self._report(
                self.options.on_nan,
                part,
                f"step {step}: {part} is not finite.{self._kept()} {self._cure(step)}",
            )
        values = dict(zip(self.model.watched, self.model.last_values.numpy().tolist(), strict=True))
        self._look_at_sigma(values)
        self._look_for_flat(values)

    def _cure(self, step: int) -> str:
        """Advice for the first step with numbers that are not finite."""
        cure = (
            "Lower the learning rate or clip_norm"
            if step > 1
            else "No weight had changed before: look at the options and weights of the losses, and "
            "for NaN in the data and in the weights that the training began with"
        )
        return cure if self.model.compute_dtype == "float32" else f"{cure}, or train in float32"

    def _kept(self) -> str:
        """A sentence on the checkpoint that remains if the training is stopped now."""
        if self.options.on_nan == "warn":
            return ""
        step = self.checkpoints.progress.step
        return (
            f" The checkpoint of step {step} is kept." if step else " There is no checkpoint yet."
        )

    def _look_at_sigma(self, values: dict[str, float]) -> None:
        low, high = np.log(self.options.sigma)
        for side in ("image", "caption"):
            value = values.get(f"{side}_log_sigma")
            if value is None or low <= value <= high or math.isnan(value):
                continue
            word, cure = (
                ("collapsed", "raise the weight of kl_divergence")
                if value < low
                else ("exploded", "lower the learning rate")
            )
            self._report(
                self.options.on_sigma,
                f"{side} sigma {word}",
                f"step {self.step}: the {side} sigma has {word}: its geometric mean is "
                f"{math.exp(value):.3g}; {cure}",
            )

    def _look_for_flat(self, values: dict[str, float]) -> None:
        for name, trivial in (self._trivial or {}).items():
            near = abs(values[name] - trivial) <= self.options.flat_tolerance * abs(trivial)
            if not near:
                self._flat_since.pop(name, None)
                continue
            since = self._flat_since.setdefault(name, self.step)
            if self.step - since >= self.options.flat_steps:
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
