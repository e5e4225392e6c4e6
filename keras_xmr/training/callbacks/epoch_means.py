"""The means over an epoch, of which this process may have done only the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_xmr.training.callbacks.base import StepCallback
from keras_xmr.training.checkpoints import Checkpoints


class EpochMeans(StepCallback):
    """Makes the logs of an epoch that was interrupted those of all its steps.

    Args:
        checkpoints: Know the means of the steps that were done before.
        steps_per_epoch: Steps an epoch.
    """

    def __init__(self, checkpoints: Checkpoints, steps_per_epoch: int) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.steps_per_epoch = steps_per_epoch
        self._logs: dict[str, Any] = {}  # of the last step, not fetched

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
