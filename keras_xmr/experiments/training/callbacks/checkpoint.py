"""Checkpoints every few steps, after every epoch, and on SIGTERM."""

from __future__ import annotations

from dataclasses import dataclass

from keras_xmr.experiments.training.callbacks.logs import EpochMeans
from keras_xmr.experiments.training.callbacks.step import StepCallback
from keras_xmr.experiments.training.callbacks.watchdog import Watchdog
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.utils.termination import TerminatedError, TerminationNotice


@dataclass(eq=False)
class Checkpoint(StepCallback):
    """Saves every few steps, after every epoch or the last one, and on SIGTERM.

    Not where the watchdog finds something wrong.

    The last step of an epoch is saved once, after its validation: a training that is killed while
    it validates does the steps before it again, and then validates as one that was not killed.

    Args:
        checkpoints: Where to save.
        watchdog: Checks before every checkpoint, so that none holds a NaN.
        every: Steps between two checkpoints; 0 for none within an epoch.
        notice: Whether SIGTERM has arrived.
        means: Running means of the logs, saved with each checkpoint.
        end: The step of the only epoch whose end is saved; None for all.

    Raises:
        TerminatedError: From within `fit`, after SIGTERM.
    """

    checkpoints: Checkpoints
    watchdog: Watchdog
    every: int
    notice: TerminationNotice
    means: EpochMeans
    end: int | None = None

    def on_step(self, step: int) -> None:
        if step % self.means.steps_per_epoch and self._is_due(step):
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        step = self.checkpoints.progress.step = self.step
        if self.end in (None, step) or self._is_due(step):
            self._save()

    def _is_due(self, step: int) -> bool:
        return self.notice.given or bool(self.every and step % self.every == 0)

    def _save(self) -> None:
        self.watchdog.inspect()
        self.checkpoints.progress.step = self.step
        self.checkpoints.save(self.means.so_far())
        if self.notice.given:
            chief = self.checkpoints.distribution.is_chief
            kept = f"the checkpoint of step {self.step} is kept" if chief else "the chief goes on"
            raise TerminatedError(f"terminated: {kept}; run the same command again to resume")
