"""The progress bar of a training."""

from __future__ import annotations

from dataclasses import dataclass, field

from data_pipelines.samplers import Sampler
from keras_xmr.experiments.training.callbacks.step import StepCallback
from keras_xmr.utils.progress import Progress


@dataclass(eq=False)
class ProgressBar(StepCallback):
    """One bar for the whole training, with its epoch, pairs (or images) per second and the loss.

    Args:
        sampler: Defines the size of a step and of an epoch.
        epochs: Epochs of the whole training.
        every: Steps between two looks at the loss.
        may_end_early: Whether the training may end before its last epoch.
    """

    sampler: Sampler
    epochs: int
    every: int
    may_end_early: bool = False
    _bar: Progress | None = field(default=None, init=False)
    _shown: dict[str, str] = field(default_factory=dict, init=False)

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        steps, size = self.sampler.steps, self.sampler.batch_size
        self._shown["epoch"] = f"{self.step // steps + 1}/{self.epochs}"
        if self._bar is None:
            name = "training, at most" if self.may_end_early else "training"
            total = self.epochs * steps * size
            self._bar = Progress(name, total, self.sampler.UNIT, initial=self.step * size)
        self._bar.set_postfix(self._shown, refresh=False)

    def on_step(self, step: int) -> None:
        if self._bar is None:
            return
        if step % self.every == 0:
            self._shown["loss"] = f"{float(self.model.last_values.numpy()[0]):.4g}"
            self._shown |= {m.name: f"{float(m.result()):.3f}" for m in self.model.recalls}
            self._bar.set_postfix(self._shown, refresh=False)
        self._bar.update(self.sampler.batch_size)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if self._bar is not None:
            self._bar.make_room()

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
