"""Checkpoints of a training that can be killed at any moment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.resources import disk_error_message
from keras_xmr.model.retriever import Retriever
from keras_xmr.runs.folder import BEST_IN_PART
from keras_xmr.training.checkpoint_files import CheckpointError, CheckpointFiles, ExternalWeights
from keras_xmr.training.distribution import Distribution
from keras_xmr.utils.files import NO_ARRAY, atomic_write, replace_atomically, reserve, sync

_VARIABLES = "variables.json"
_STATE = "checkpoint"
_HDF5_OVERHEAD = 16_384
"""Bytes of an HDF5 file beyond the numbers, per variable; it takes at most half of that."""


@dataclass
class Progress:
    """Progress of a training.

    Attributes:
        step: Steps done, over all phases.
        best: The best value of the monitored metric so far.
        best_step: The step of that value.
    """

    step: int = 0
    best: float = float("-inf")
    best_step: int = 0

    def numbers(self) -> list[float]:
        """The fields as a checkpoint stores them."""
        return [float(value) for value in asdict(self).values()]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> Progress:
        """Restores progress from `numbers`."""
        step, best, best_step = map(float, numbers)
        return cls(int(step), best, int(best_step))


class Checkpoints:
    """Saves and restores model, optimizer and progress together.

    A checkpoint becomes the newest by an atomic rename, so a kill while it is written leaves the
    previous one, which is also read where the newest is damaged. Of several workers only the chief
    reads and writes, and sends the others the values; so all must call the same methods.

    Order of calls: `read_progress` or `restore_model` at any time; for each phase `start_phase`
    once the model is compiled, then `restore` if the phase had begun, then
    `limit_external_weights`, then `save` and `save_best`; `complete_best` at the end.

    Args:
        folder: Where they are kept, or the files there.
        model: The model.
        distribution: The devices and workers that train it.
        external: Frozen weights that are not stored; the model must have them already.

    Attributes:
        bare: The model without its optimizer, for saving and loading files of weights.
    """

    def __init__(
        self,
        folder: Path | CheckpointFiles,
        model: Retriever,
        distribution: Distribution,
        external: ExternalWeights | None = None,
    ) -> None:
        self.files = folder if isinstance(folder, CheckpointFiles) else CheckpointFiles(folder)
        self.folder = self.files.folder
        self.model = model
        self.distribution = distribution
        self.progress = Progress()
        self._external = external or ExternalWeights()
        # Variables are made here and not when they are needed: that all workers do together.
        self.bare = model.without_optimizer()
        self._state = tf.Variable(self.progress.numbers(), dtype=tf.float64, name="progress")

    def read_progress(self) -> Progress:
        """The progress of the newest checkpoint that is whole.

        Raises:
            CheckpointError: If it is missing, or of another model.
        """
        if self.distribution.is_chief:
            self._compare()
            self.files.find_newest()
            self._read(tf.train.Checkpoint(progress=self._state))
        self.distribution.share([self._state])
        return Progress.from_numbers(self._state.numpy())

    def restore_model(self) -> None:
        """Restores the model of the newest checkpoint, and the progress, but no optimizer.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(tf.train.Checkpoint(**self._saved()), self._all())

    def start_phase(self, frozen: Collection[str] = ()) -> None:
        """Begins to save the optimizer too, once a phase has compiled the model with it.

        Args:
            frozen: The sides with encoders that the phase does not train.
        """
        optimizer = self.model.optimizer
        optimizer.build(self.model.trainable_variables)
        # Lists of variables, not the objects that hold them: the variables that Keras tracks
        # of an object depend on earlier freezing in this process.
        state = {"optimizer": [variable.value for variable in optimizer.variables]}
        self._frozen = frozen
        self._shared = [*self._all(), *state["optimizer"]]
        self._checkpoint = tf.train.Checkpoint(**self._saved(self._external.only(frozen)), **state)
        self.distribution.share(self._shared)

    def restore(self) -> None:
        """Restores the model, the optimizer and the progress of the newest checkpoint.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(self._checkpoint, self._shared)

    def limit_external_weights(self, best: Path) -> None:
        """Stores encoders that the started phase trains, from now on.

        Call it after restoring the phase, and before its first step.

        Args:
            best: The file of the best weights, which is completed if it lacks trained weights.
        """
        left = self._external.only(self._frozen)
        if left.checksums != self._external.checksums:
            self.complete_best(best)
        self._external = left

    def _all(self) -> list[tf.Variable]:
        """All variables of progress and model, external ones too."""
        return [self._state, *(v.value for vs in _parts(self.model).values() for v in vs)]

    def _saved(self, external: ExternalWeights | None = None) -> dict[str, Any]:
        """All that is saved besides the optimizer."""
        external = self._external if external is None else external
        saved = {"progress": self._state, **_variables(self.model, external)}
        return saved | ({"left_out": external} if external.checksums else {})

    def _restore(self, checkpoint: tf.train.Checkpoint, variables: list[tf.Variable]) -> None:
        if self.distribution.is_chief:
            self._read(checkpoint)
        self.distribution.share(variables)
        self.progress = Progress.from_numbers(self._state.numpy())

    def _read(self, checkpoint: tf.train.Checkpoint) -> None:
        """Reads the newest checkpoint into the variables of this one."""
        try:
            # The file may hold more, such as the optimizer of another phase.
            checkpoint.read(self.files.newest).assert_existing_objects_matched().expect_partial()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise CheckpointError(
                f"{self.files.newest} does not fit this model: {error}\nGive this run another name "
                f"(--set name=...), or delete {self.folder} to train from the start"
            ) from None

    def means(self) -> dict[str, float]:
        """The means that were saved with the restored checkpoint; empty if they are lost."""
        return _read_json(Path(f"{self.files.newest}.json")) if self.distribution.is_chief else {}

    def save(self, means: Mapping[str, float]) -> None:
        """Saves the state as it is now.

        Args:
            means: Means of the logs over the finished steps of the epoch.

        Raises:
            CheckpointError: If it cannot be written.
        """
        if not self.distribution.is_chief:
            return
        self._state.assign(self.progress.numbers())
        step = self.progress.step
        try:
            self._write(self.files.path(step), means)
        except (OSError, tf.errors.OpError) as error:
            for part in self.folder.glob(f"ckpt-{step}[._]*"):
                part.unlink() if part.is_file() else shutil.rmtree(part, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be written to {self.folder}: "
                f"{disk_error_message(error) or error}. The training resumes from the previous "
                "checkpoint, if there is one"
            ) from error

    def _write(self, path: str, means: Mapping[str, float]) -> None:
        """Writes all of a checkpoint, then makes it the newest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self.folder / _VARIABLES, json.dumps(_shapes(self.model)).encode())
        atomic_write(Path(f"{path}.json"), json.dumps(dict(means)).encode())
        self._checkpoint.write(path)
        for part in self.folder.glob(f"{Path(path).name}.[di]*"):
            sync(part)
        sync(self.folder)
        # As TensorFlow names the newest one.
        state = f'model_checkpoint_path: "{Path(path).name}"\n'
        atomic_write(self.folder / _STATE, state.encode())
        self.files.register(path)

    def save_best(self, path: Path) -> None:
        """Saves the weights of the model as the best so far.

        Without external weights until `complete_best`, in a file next to the checkpoints.

        Args:
            path: The file that appears whole, at once or when it is completed.
        """
        part = self.folder / BEST_IN_PART
        if not self._external.checksums:
            self.save_weights(path)
            part.unlink(missing_ok=True)
            return
        part.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {name: v.numpy() for name, v in self._in_part().items()}
        with replace_atomically(part, ".npz") as temporary:
            np.savez(temporary, **arrays)

    def complete_best(self, path: Path) -> None:
        """Adds external weights to the best weights, if they are missing.

        Args:
            path: Their file.

        Raises:
            CheckpointError: If the saved part of them is damaged.
        """
        part, variables = self.folder / BEST_IN_PART, self._in_part()
        if not self.distribution.is_chief or not part.exists():
            return
        try:
            with np.load(part) as kept:
                best = {name: kept[name] for name in variables}
        except (*NO_ARRAY, KeyError) as error:
            raise CheckpointError(
                f"{part} is damaged: {error}. Delete {self.folder} to train from the start"
            ) from None
        now = {name: variable.numpy() for name, variable in variables.items()}
        try:
            _assign(variables, best)
            self.save_weights(path)
        finally:
            _assign(variables, now)
        part.unlink()

    def _in_part(self) -> dict[str, tf.Variable]:
        """The part of the best weights that is saved before `complete_best`."""
        parts = _variables(self.model, self._external)
        notes = {"global_step": self.model.global_step.value}
        parts = {name: parts[name] for name in parts if name != "notes"}
        return notes | {f"{p}/{n}": v for p, named in parts.items() for n, v in named.items()}

    def save_weights(self, path: Path) -> None:
        """Writes the weights of the model, without its optimizer, to a file that appears whole."""
        self.bare.global_step.assign(self.model.global_step)
        sizes = [int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in self.bare.variables]
        with replace_atomically(path, ".weights.h5") as temporary:
            # HDF5 crashes the process at its end if it could not write all of a file.
            reserve(temporary, sum(sizes) + _HDF5_OVERHEAD * (1 + len(sizes)))
            self.bare.save_weights(temporary)

    def _compare(self) -> None:
        """Checks that the checkpoints have the variables of the model.

        Raises:
            CheckpointError: If they do not.
        """
        saved = _read_json(self.folder / _VARIABLES)
        expected = _shapes(self.model)
        wrong = [
            f"{name}: {saved.get(name, 'none')} there, {expected.get(name, 'none')} here"
            for name in sorted(saved.keys() | expected.keys())
            if saved.get(name) != expected.get(name)
        ]
        if saved and wrong:
            raise CheckpointError(
                f"the checkpoints in {self.folder} are of another model. {len(wrong)} of its "
                "variables differ, such as\n  "
                + "\n  ".join(wrong[:5])
                + "\nGive this run another name (--set name=...), or delete that folder"
            )


def _read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; empty if the file is missing or damaged."""
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return saved if isinstance(saved, dict) else {}


def _parts(model: Retriever) -> dict[str, list[keras.Variable]]:
    """All variables of a model that a checkpoint stores, by part."""
    return {
        "image_tower": model.image_tower.variables,
        "text_tower": model.text_tower.variables,
        "matcher": model.matcher.variables,
        "objective": model.objective.variables,
        "notes": [model.global_step, model.last_values, model.first_nonfinite_step, model.bad_part],
    }


def _variables(model: Retriever, external: ExternalWeights) -> dict[str, dict[str, tf.Variable]]:
    """Stored variables by part and position, as TensorFlow names the items of a list."""
    absent = {id(weight) for weight in external.weights(model)}
    return {
        name: {str(n): v.value for n, v in enumerate(variables) if id(v) not in absent}
        for name, variables in _parts(model).items()
    }


def _assign(variables: Mapping[str, tf.Variable], values: Mapping[str, np.ndarray]) -> None:
    for name, variable in variables.items():
        variable.assign(values[name])


def _shapes(model: Retriever) -> dict[str, list[int]]:
    return {
        f"{name}/{number}/{variable.name}": list(variable.shape)
        for name, variables in _parts(model).items()
        for number, variable in enumerate(variables)
    }
