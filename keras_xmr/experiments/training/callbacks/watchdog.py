"""Detection of faults in training."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from keras_xmr.experiments.config.train_section import WatchdogOptions
from keras_xmr.experiments.training.callbacks.step import StepCallback
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.model.retriever import GRADIENT
from keras_xmr.utils.errors import UserError

_LOGGER = logging.getLogger(__name__)


class TrainingStoppedError(UserError):
    """The watchdog stopped a training; the message names the step, the reason and the remedy."""


@dataclass(eq=False)
class Watchdog(StepCallback):
    """Stops or warns when a loss is not finite, when sigma collapses, when a loss stays flat.

    An epoch without any gradient leads to a warning as well.

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
            name = self.model.watched[int(self.model.bad_number.numpy())]
            self._report(
                self.options.on_nan,
                name,
                f"step {step}: {name} is not finite.{self._rest(step)}",
            )
        values = dict(zip(self.model.watched, self.model.last_values.numpy().tolist(), strict=True))
        self._watch_sigma(values)
        self._watch_flatness(values)

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

    def _watch_sigma(self, values: dict[str, float]) -> None:
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

    def _watch_flatness(self, values: dict[str, float]) -> None:
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
