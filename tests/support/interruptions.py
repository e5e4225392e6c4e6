"""Runs that are killed in the middle, and what they leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_xmr.experiments.experiment import Experiment
from keras_xmr.utils.termination import TerminatedError


def last_weights(run: Experiment) -> dict[str, np.ndarray]:
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


class At(keras.callbacks.Callback):
    """Does something after a step."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        super().__init__()
        self.step = step
        self.act = act

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if int(self.model.global_step.numpy()) == self.step:
            self.act()


def _kill() -> None:
    """Stands for a kill: everything that is not in a checkpoint is lost."""
    raise KeyboardInterrupt


def interrupted(run: Experiment, step: int, monkeypatch) -> None:
    """Trains until a step, and no further."""
    _train(run, At(step, _kill), KeyboardInterrupt, monkeypatch)


def terminated(run: Experiment, step: int, monkeypatch) -> None:
    """Trains until SIGTERM comes after a step."""
    terminate = partial(os.kill, os.getpid(), signal.SIGTERM)
    _train(run, At(step, terminate), TerminatedError, monkeypatch)


def _train(run: Experiment, at: At, error: type[BaseException], monkeypatch) -> None:
    fit = keras.Model.fit

    def fit_until(self, *args, callbacks, **kwargs):
        at.set_model(self)
        callbacks.callbacks.append(at)
        return fit(self, *args, callbacks=callbacks, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("keras_xmr.model.retriever.Retriever.fit", fit_until)
        with pytest.raises(error):
            run.train()
