"""Callbacks that count the steps of a whole training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import keras


@dataclass(eq=False)
class StepCallback(keras.callbacks.Callback):
    """A callback that knows the step of the whole training without asking the device.

    Attributes:
        step: Steps done, over all phases.
    """

    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self.step = int(self.model.global_step.numpy())

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.step += 1
        self.on_step(self.step)

    def on_step(self, step: int) -> None:
        """Reacts to a step that has ended.

        Args:
            step: Steps done, over all phases.
        """


class UnreadLogs(keras.callbacks.CallbackList):
    """Passes on the logs of a step as tensors.

    The list of Keras converts all of them to numbers, and so waits for the device, in every step.
    Here a callback that needs a number fetches it.
    """

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)
