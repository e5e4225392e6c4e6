"""Runs that are killed in the middle, and what they leave behind."""

from __future__ import annotations

from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_xmr.pipeline import Run


def last_weights(run: Run) -> dict[str, np.ndarray]:
    """Every number of the last weights."""
    return weights_in(run.folder.last_weights)


def weights_in(path: Path) -> dict[str, np.ndarray]:
    """Every number of a file of weights."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]} if hasattr(item, "dtype") else {})
        )
    return found


class InterruptAt(keras.callbacks.Callback):
    """Stands for a kill: everything that is not in a checkpoint is lost."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if int(self.model.global_step.numpy()) == self.step:
            raise KeyboardInterrupt


def interrupted(run: Run, step: int, monkeypatch) -> None:
    """Trains until a step, and no further."""
    with monkeypatch.context() as patch:
        fit = keras.Model.fit
        patch.setattr(
            "keras_xmr.retriever.Retriever.fit",
            lambda self, *a, callbacks, **k: fit(
                self, *a, callbacks=[*callbacks, InterruptAt(step)], **k
            ),
        )
        with pytest.raises(KeyboardInterrupt):
            run.train()
