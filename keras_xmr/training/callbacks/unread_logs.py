"""Callbacks that are given the logs of a step without anyone having fetched them."""

from __future__ import annotations

from typing import Any

import keras


class UnreadLogs(keras.callbacks.CallbackList):
    """Hands over the logs of a step as the tensors that they are.

    The list that Keras makes turns all of them to numbers, and so waits for them, in every step.
    Who reads a number fetches it.
    """

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)
