"""What the callbacks of this project have in common."""

from __future__ import annotations

import keras


class StepCallback(keras.callbacks.Callback):
    """A callback that knows the step of the whole training without asking the device.

    Attributes:
        step: Steps done, over all phases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def on_train_begin(self, logs: dict | None = None) -> None:
        self.step = int(self.model.global_step.numpy())

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.step += 1
        self.on_step(self.step)

    def on_step(self, step: int) -> None:
        """Called after every step.

        Args:
            step: Steps done, over all phases.
        """
