"""Checkpoints of a training that can be killed at any moment."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_xmr.experiments.training.distribution import Distribution
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.disk_errors import disk_error_message
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, replace_atomically, reserve

_LOGGER = logging.getLogger(__name__)

_KEPT = 2
"""Number of checkpoints that are kept, so that one of them may be damaged."""

_FILE = re.compile(r"ckpt-(\d+)\.(index|data-\d+-of-\d+)")

_HDF5_OVERHEAD = 16_384
"""Bytes of an HDF5 file beyond the numbers, per variable; it takes at most half of that."""


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message names the reason and the remedy."""


class Progress(tf.train.experimental.PythonState):
    """Progress of a training, a part of its checkpoints.

    Attributes:
        step: Steps done, over all phases.
        best: The best value of the monitored metric so far.
        best_step: The step of that value.
        means: Means of the logs over the finished steps of the epoch, by name.
        cca: The options of CCA that were chosen at the start; empty without.
        rank_strengths: The strengths of predictions of ranks that were chosen at the start.
    """

    _SAVED = "step", "best", "best_step", "means", "cca", "rank_strengths"

    def __init__(self, step: int = 0, best: float = float("-inf"), best_step: int = 0) -> None:
        super().__init__()
        self.step, self.best, self.best_step = step, best, best_step
        self.means: dict[str, float] = {}
        self.cca: dict[str, Any] = {}
        self.rank_strengths: dict[str, float] = {}

    def serialize(self) -> str:
        return json.dumps([getattr(self, name) for name in self._SAVED])

    def deserialize(self, string_value: str) -> None:
        # Checkpoints of earlier versions have fewer values.
        for name, value in zip(self._SAVED, json.loads(string_value), strict=False):
            setattr(self, name, value)


class Checkpoints:
    """Saves and restores model, optimizer and progress together.

    A kill while one is written leaves the previous one, which is also read where the newest is
    damaged. Weights that no phase trains are written once. Of several workers only the chief reads
    and writes, and sends the others the values; so all must call the same methods.

    Order of calls: `read_step` or `restore_model` at any time; for each phase `start_phase` once
    the model is compiled, then `restore` if the phase had begun, then `save` and `save_best`.

    Args:
        folder: Where they are kept.
        model: The model.
        distribution: The devices and workers that train it.
        frozen: Weights of the model that no phase trains.

    Attributes:
        plain: The model without its optimizer, for saving and loading files of weights.
    """

    def __init__(
        self,
        folder: Path,
        model: Retriever,
        distribution: Distribution,
        frozen: Sequence[keras.Variable] = (),
    ) -> None:
        self.folder = folder
        self.model = model
        self.distribution = distribution
        self.progress = Progress()
        self._newest = ""
        # Variables are made here and not when they are needed: that all workers do together.
        self.plain = model.without_optimizer()
        absent = {id(weight) for weight in frozen}
        variables = [v.value for v in _variables(model) if id(v) not in absent]
        self._model = {"progress": self.progress, "model": variables}
        self._best = tf.train.Checkpoint(model=variables)
        values = [weight.value for weight in frozen]
        self._frozen = tf.train.Checkpoint(frozen=values)
        self._has_frozen = not values
        self._shared = [*variables, *values]
        if distribution.is_chief:
            for unfinished in (*folder.glob("*_temp"), *folder.glob("best/*_temp")):
                shutil.rmtree(unfinished)

    def read_step(self) -> int:
        """Returns the step of the newest checkpoint that is whole.

        Raises:
            CheckpointError: If none can be read.
        """
        step = 0
        if self.distribution.is_chief:
            self._newest = self._find_newest()
            progress = Progress()
            tf.train.Checkpoint(progress=progress).read(self._newest).expect_partial()
            step = progress.step
        return int(self.distribution.from_chief([step])[0])

    def restore_model(self) -> None:
        """Restores the model of the newest checkpoint, and the progress, but no optimizer.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(tf.train.Checkpoint(**self._model), self._shared)

    def start_phase(self) -> None:
        """Begins to save the optimizer too, once a phase has compiled the model with it."""
        optimizer = self.model.optimizer
        optimizer.build(self.model.trainable_variables)
        # Lists of variables, not the objects that hold them: the variables that Keras tracks
        # of an object depend on earlier freezing in this process.
        self._optimizer = [variable.value for variable in optimizer.variables]
        self._checkpoint = tf.train.Checkpoint(**self._model, optimizer=self._optimizer)
        self.distribution.share([*self._shared, *self._optimizer])

    def restore(self) -> None:
        """Restores the model, the optimizer and the progress of the newest checkpoint.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(self._checkpoint, [*self._shared, *self._optimizer])

    def save(self, means: Mapping[str, float]) -> None:
        """Saves the state as it is now.

        Args:
            means: Means of the logs over the finished steps of the epoch.

        Raises:
            CheckpointError: If it cannot be written.
        """
        if not self.distribution.is_chief:
            return
        self.progress.means = dict(means)
        if not self._has_frozen:
            with _written(self.folder / "frozen") as path:
                self._frozen.write(path)
            self._has_frozen = True
        self._newest = _save(self._checkpoint, self.folder, self.progress.step)

    def save_best(self) -> None:
        """Saves the weights of the model as the weights of `progress.best_step`.

        Raises:
            CheckpointError: If they cannot be written.
        """
        if self.distribution.is_chief:
            _save(self._best, self.folder / "best", self.progress.best_step)

    def write_best(self, path: Path) -> None:
        """Writes the best weights to a file that appears whole; the model has them afterwards.

        Raises:
            CheckpointError: If they cannot be read.
        """
        self._read(self._best, str(self.folder / "best" / f"ckpt-{self.progress.best_step}"))
        self.save_weights(path)

    def save_weights(self, path: Path) -> None:
        """Writes the weights of the model, without its optimizer, to a file that appears whole."""
        self.plain.global_step.assign(self.model.global_step)
        sizes = [int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in self.plain.variables]
        with replace_atomically(path, ".weights.h5") as temporary:
            # HDF5 crashes the process at its end if it could not write all of a file.
            reserve(temporary, sum(sizes) + _HDF5_OVERHEAD * (1 + len(sizes)))
            self.plain.save_weights(temporary)

    def _find_newest(self) -> str:
        """Returns the newest checkpoint that is not damaged; removes newer ones with a warning.

        Raises:
            CheckpointError: If all are damaged or missing.
        """
        damaged: dict[str, str] = {}
        for path in reversed(_paths(self.folder)):
            if damage := _damage(path):
                damaged[path] = f"{path} is damaged: {damage}"
                continue
            if damaged:
                _LOGGER.warning("%s; resuming from %s", "; ".join(damaged.values()), path)
            for newer in damaged:
                _remove(newer)
            return path
        reasons = "; ".join(damaged.values()) or "the folder has none"
        raise CheckpointError(
            f"no checkpoint of {self.folder} can be read: {reasons}. Delete that folder to train "
            "from the start"
        )

    def _restore(self, checkpoint: tf.train.Checkpoint, variables: list[tf.Variable]) -> None:
        if self.distribution.is_chief:
            self._read(checkpoint, self._newest)
            if not self._has_frozen:
                self._read(self._frozen, str(self.folder / "frozen"))
                self._has_frozen = True
        self.distribution.share(variables)
        progress = self.progress
        numbers = np.array([progress.step, progress.best, progress.best_step], np.float64)
        step, progress.best, best_step = map(float, self.distribution.from_chief([numbers])[0])
        progress.step, progress.best_step = int(step), int(best_step)

    def _read(self, checkpoint: tf.train.Checkpoint, path: str) -> None:
        try:
            # The file may hold more, such as the optimizer of another phase.
            checkpoint.read(path).assert_existing_objects_matched().expect_partial()
        except tf.errors.OpError as error:
            raise CheckpointError(
                f"{path} is damaged: {error.message}. Delete {self.folder} to train from the start"
            ) from None
        except (AssertionError, ValueError) as error:
            raise CheckpointError(
                f"{path} is of another model: {error}\nGive this run another name "
                f"(--set name=...), or delete {self.folder} to train from the start"
            ) from None


def _save(checkpoint: tf.train.Checkpoint, folder: Path, step: int) -> str:
    """Writes the checkpoint of a step, removes those that are too old, and returns its path."""
    with _written(folder / f"ckpt-{step}") as path:
        checkpoint.write(path)
        # For `tf.train.latest_checkpoint`.
        atomic_write(folder / "checkpoint", f'model_checkpoint_path: "ckpt-{step}"\n'.encode())
    for old in _paths(folder)[:-_KEPT]:
        _remove(old)
    return path


@contextmanager
def _written(path: Path) -> Iterator[str]:
    """Makes a folder for a checkpoint that is written in a block, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield str(path)
    except (OSError, tf.errors.OpError) as error:
        _remove(str(path))
        raise CheckpointError(
            f"the checkpoint {path} cannot be written: {disk_error_message(error) or error}. "
            "The training resumes from the previous checkpoint, if there is one"
        ) from error


def _variables(model: Retriever) -> list[keras.Variable]:
    """Returns all variables of a model that a checkpoint stores."""
    layers = (model.image_tower, model.text_tower, model.matcher, model.objective)
    notes = [model.global_step, model.last_values, model.first_nonfinite_step, model.bad_number]
    return [*(variable for layer in layers for variable in layer.variables), *notes]


def _paths(folder: Path) -> list[str]:
    """Returns all checkpoints of a folder that have any file, the oldest first."""
    matches = [_FILE.fullmatch(path.name) for path in folder.glob("ckpt-*")]
    numbers = {int(match[1]) for match in matches if match}
    return [str(folder / f"ckpt-{number}") for number in sorted(numbers)]


def _remove(checkpoint: str) -> None:
    """Removes all files of a checkpoint, also of an interrupted writing."""
    path = Path(checkpoint)
    for file in path.parent.glob(f"{path.name}[._]*"):
        shutil.rmtree(file, ignore_errors=True) if file.is_dir() else file.unlink()


def _damage(checkpoint: str) -> str:
    """Describes the damage of a checkpoint; empty if every number can be read."""
    if not Path(f"{checkpoint}.index").exists():
        return "its index is missing"
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, LookupError, OSError) as error:
        return str(error).split("\n")[0]
    return ""
