"""Saves checkpoints while a model trains."""

from __future__ import annotations

from keras_xmr.training.callbacks.base import StepCallback
from keras_xmr.training.callbacks.watchdog import Watchdog
from keras_xmr.training.checkpoints import Checkpoints


class Checkpoint(StepCallback):
    """Saves every few steps and after every epoch, unless the watchdog finds something wrong.

    Args:
        checkpoints: Where to save.
        watchdog: Looks before every checkpoint, so that none holds a NaN.
        every: Steps between two checkpoints; 0 for none within an epoch.
    """

    def __init__(self, checkpoints: Checkpoints, watchdog: Watchdog, every: int) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.watchdog = watchdog
        self.every = every

    def on_step(self, step: int) -> None:
        if self.every and step % self.every == 0:
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._save()

    def _save(self) -> None:
        self.watchdog.look()
        self.checkpoints.progress.step = self.step
        self.checkpoints.save()
