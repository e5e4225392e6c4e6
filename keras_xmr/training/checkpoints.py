"""Checkpoints of a training that can be killed at any moment."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from data_pipelines.errors import UserError
from data_pipelines.files import aside_of, atomic_write, put_in_place, sync
from keras_xmr.model.retriever import Retriever
from keras_xmr.training.distribution import Team

_LOGGER = logging.getLogger(__name__)

_VARIABLES = "variables.json"
_STATE = "checkpoint"
_FILE = re.compile(r"ckpt-(\d+)\.(index|data-\d+-of-\d+)")


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        step: Steps done, over all phases.
        best: The best value of the monitored metric so far.
        best_step: The step of that value.
    """

    step: int = 0
    best: float = float("-inf")
    best_step: int = 0

    def numbers(self) -> list[float]:
        """All of it, as a checkpoint has it."""
        return [float(value) for value in asdict(self).values()]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Progress:
        """What `numbers` has made numbers of."""
        step, best, best_step = map(float, numbers)
        return cls(int(step), best, int(best_step))


class Checkpoints:
    """Saves and restores model, optimizer and progress together.

    A checkpoint is written aside and then named by an atomic rename, so a kill in the middle
    leaves the one before it, which is also read where the newest is damaged. Of several workers
    the chief alone writes and reads them, and the others have from it what it has read; so all
    must call the same methods.

    Args:
        folder: Where they are kept.
        model: The model.
        team: The workers.
        keep: How many are kept.

    Attributes:
        bare: The model without its optimizer, whose weights are saved and loaded as files.
    """

    def __init__(self, folder: Path, model: Retriever, team: Team, keep: int = 2) -> None:
        self.folder = folder
        self.model = model
        self.team = team
        self.keep = keep
        self.progress = Progress()
        self._damaged: list[str] = []
        # Variables are made here and not when they are needed: that all workers do together.
        self.bare = model.without_optimizer()
        self._state = tf.Variable(self.progress.numbers(), dtype=tf.float64, name="progress")

    def peek(self) -> Progress:
        """The progress of the newest checkpoint that is whole.

        Raises:
            CheckpointError: If there is none, or they are of another model.
        """
        if self.team.is_chief:
            self._compare()
            self._newest = self._newest_whole()
            self._read(tf.train.Checkpoint(progress=self._state))
        self.team.share([self._state])
        return Progress.of_numbers(self._state.numpy())

    def _found(self) -> list[str]:
        """The checkpoints of which there is any file, the newest first."""
        matches = [_FILE.fullmatch(path.name) for path in self.folder.glob("ckpt-*")]
        numbers = {int(match[1]) for match in matches if match}
        return [str(self.folder / f"ckpt-{number}") for number in sorted(numbers, reverse=True)]

    def _newest_whole(self) -> str:
        says: list[str] = []
        for path in self._found():
            damage = _damage(path)
            if not damage:
                if says:
                    _LOGGER.warning("%s; going on from %s", "; ".join(says), path)
                return path
            self._damaged.append(path)
            says.append(f"{path} is damaged: {damage}")
        raise CheckpointError(
            f"no checkpoint of {self.folder} can be read: {'; '.join(says) or 'there is none'}. "
            "Delete that folder, and the training begins anew"
        )

    def restore_model(self) -> None:
        """Restores the model of the newest checkpoint, and the progress, but no optimizer.

        Raises:
            CheckpointError: If it does not fit.
        """
        variables = self._variables()
        self._restore(tf.train.Checkpoint(**variables), variables)

    def start_phase(self) -> None:
        """Begins to save the optimizer too, once a phase has compiled the model with it."""
        optimizer = self.model.optimizer
        optimizer.build(self.model.trainable_variables)
        # Lists of variables, not the objects that hold them: what Keras tracks of an object
        # depends on what has been frozen in this process before.
        self._saved = self._variables()
        self._saved["optimizer"] = [variable.value for variable in optimizer.variables]
        self._checkpoint = tf.train.Checkpoint(**self._saved)
        self.team.share(tf.nest.flatten(self._saved))

    def restore(self) -> None:
        """Restores the model, the optimizer and the progress of the newest checkpoint.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(self._checkpoint, self._saved)

    def _variables(self) -> dict[str, Any]:
        """What is saved in any case."""
        return {"progress": self._state, **_variables(self.model)}

    def _restore(self, checkpoint: tf.train.Checkpoint, variables: dict[str, Any]) -> None:
        if self.team.is_chief:
            self._read(checkpoint)
        self.team.share(tf.nest.flatten(variables))
        self.progress = Progress.of_numbers(self._state.numpy())

    def _read(self, checkpoint: tf.train.Checkpoint) -> None:
        """Reads the newest checkpoint into the variables of this one."""
        try:
            # More may be there than is asked for, such as the optimizer of another phase.
            checkpoint.read(self._newest).assert_existing_objects_matched().expect_partial()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise CheckpointError(
                f"{self._newest} does not fit this model: {error}\nGive this run another name "
                f"(--set name=...), or delete {self.folder}, and the training begins anew"
            ) from None

    def means(self) -> dict[str, float]:
        """The means that were saved with the checkpoint that was read; none if they are lost."""
        return _read_json(Path(f"{self._newest}.json")) if self.team.is_chief else {}

    def save(self, means: Mapping[str, float]) -> None:
        """Saves the state as it is now.

        Args:
            means: Of the logs, over the steps of the epoch that have been done.

        Raises:
            CheckpointError: If it cannot be written.
        """
        if not self.team.is_chief:
            return
        self._state.assign(self.progress.numbers())
        step = self.progress.step
        try:
            self._write(str(self.folder / f"ckpt-{step}"), means)
        except (OSError, tf.errors.OpError) as error:
            for part in self.folder.glob(f"ckpt-{step}[._]*"):
                part.unlink() if part.is_file() else shutil.rmtree(part, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be written to {self.folder}. The disk may "
                "be full; free some space and start again: the training goes on at the checkpoint "
                f"before, if there is one. {error}"
            ) from error

    def _write(self, path: str, means: Mapping[str, float]) -> None:
        """Writes all of a checkpoint, and names it as the newest then."""
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
        self._newest = path
        self._remove_others()

    def _remove_others(self) -> None:
        """Removes checkpoints that are damaged, or older than those that are kept."""
        damaged = [path for path in self._damaged if path != self._newest]
        whole = [path for path in self._found() if path not in damaged]
        for path in damaged + whole[self.keep :]:
            for file in self.folder.glob(f"{Path(path).name}.*"):
                file.unlink()
        self._damaged = []

    def save_weights(self, path: Path) -> None:
        """Writes the weights of the model, without its optimizer, to a file that appears whole."""
        self.bare.global_step.assign(self.model.global_step)
        aside = aside_of(path, ".weights.h5")
        try:
            self.bare.save_weights(aside)
            put_in_place(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    def _compare(self) -> None:
        """Raises where the variables of the checkpoint are not those of the model."""
        saved = _read_json(self.folder / _VARIABLES)
        own = _shapes(self.model)
        wrong = [
            f"{name}: {saved.get(name, 'none')} there, {own.get(name, 'none')} here"
            for name in sorted(saved.keys() | own.keys())
            if saved.get(name) != own.get(name)
        ]
        if saved and wrong:
            raise CheckpointError(
                f"the checkpoints in {self.folder} are of another model. {len(wrong)} of its "
                "variables differ, such as\n  "
                + "\n  ".join(wrong[:5])
                + "\nGive this run another name (--set name=...), or delete that folder"
            )


def _damage(checkpoint: str) -> str:
    """What is wrong with a checkpoint; nothing if it can be read to its last number."""
    if not Path(f"{checkpoint}.index").exists():
        return "its index is missing"
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, LookupError, OSError) as error:
        return str(error).split("\n")[0]
    return ""


def _read_json(path: Path) -> dict[str, Any]:
    """What a file says beside a checkpoint; nothing if it is missing or damaged."""
    try:
        saved = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return saved if isinstance(saved, dict) else {}


def _parts(model: Retriever) -> dict[str, list[keras.Variable]]:
    """Everything of a model that a checkpoint keeps."""
    return {
        "image_tower": model.image_tower.variables,
        "text_tower": model.text_tower.variables,
        "matcher": model.matcher.variables,
        "objective": model.objective.variables,
        "notes": [model.global_step, model.last_values, model.first_nonfinite_step, model.bad_part],
    }


def _variables(model: Retriever) -> dict[str, list[tf.Variable]]:
    return {name: [v.value for v in variables] for name, variables in _parts(model).items()}


def _shapes(model: Retriever) -> dict[str, list[int]]:
    return {
        f"{name}/{number}/{variable.name}": list(variable.shape)
        for name, variables in _parts(model).items()
        for number, variable in enumerate(variables)
    }
