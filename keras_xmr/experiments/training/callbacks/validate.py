"""Validation after epochs, which saves the best weights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np

from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.training.callbacks.step import StepCallback
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.metrics import verdict
from keras_xmr.metrics.names import metric_value

_LOGGER = logging.getLogger(__name__)

_PATIENCE = 3  # Epochs that a model may stay at chance before it is said.


@dataclass(eq=False)
class Validation(StepCallback):
    """Evaluates after epochs, adds the metrics to the logs, and saves the weights when best.

    Args:
        evaluate: Evaluates the model.
        checkpoints: Checkpoints, whose progress knows the best value so far.
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
