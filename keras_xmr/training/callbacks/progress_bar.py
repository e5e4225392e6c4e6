"""The progress bar of training."""

from __future__ import annotations

from data_pipelines.progress import Progress
from data_pipelines.samplers import Sampler
from keras_xmr.training.callbacks.base import StepCallback


class ProgressBar(StepCallback):
    """One bar an epoch, with pairs, or images, a second and the loss.

    Args:
        sampler: Says what a step and an epoch hold.
        epochs: Epochs of the whole training.
        every: Steps between two looks at the loss.
    """

    def __init__(self, sampler: Sampler, epochs: int, every: int) -> None:
        super().__init__()
        self.unit = sampler.UNIT
        self.batch_size = sampler.batch_size
        self.steps_per_epoch = sampler.steps
        self.epochs = epochs
        self.every = every

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        done = self.step % self.steps_per_epoch
        self._bar = Progress(
            f"epoch {self.step // self.steps_per_epoch + 1}/{self.epochs}",
            self.steps_per_epoch * self.batch_size,
            self.unit,
            initial=done * self.batch_size,
        )

    def on_step(self, step: int) -> None:
        if step % self.every == 0:
            loss = float(self.model.last_values.numpy()[0])
            self._bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        self._bar.update(self.batch_size)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._bar.close()
