"""Logs of a step, reduced over several workers at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

Tensor = Any

_ALL = "logs"


class StepLogs(keras.Model):
    """A model with steps that return `step_logs()`.

    Keras reduces the logs of several workers one by one, and each of these reductions is a round
    over the network in every step. Here they travel as one vector, and are named afterwards.
    """

    train_function: Any
    test_function: Any
    _log_names: tuple[str, ...] = ()

    def step_logs(self) -> dict[str, Tensor]:
        """The results of the metrics of this replica, as a step returns them."""
        logs = self.get_metrics_result()
        if not isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return logs
        self._log_names = tuple(logs)
        # Keras averages the first axis of what several workers return (keras-team/keras#20585).
        return {_ALL: tf.stack([tf.cast(value, tf.float32) for value in logs.values()])[None]}

    def make_train_function(self, force: bool = False) -> None:
        """Makes the function that `fit` calls for each step."""
        if self.train_function is None or force:
            super().make_train_function(force)
            self.train_function = self._named(self.train_function)

    def make_test_function(self, force: bool = False) -> None:
        """Makes the function that `evaluate` calls for each step."""
        if self.test_function is None or force:
            super().make_test_function(force)
            self.test_function = self._named(self.test_function)

    def _named(self, function: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any], Any]:
        def named(iterator: Any) -> dict[str, Tensor]:
            logs = function(iterator)
            if not self._log_names:
                return logs
            values = tf.reshape(logs[_ALL], [len(self._log_names)])
            return dict(zip(self._log_names, tf.unstack(values), strict=True))

        return named
