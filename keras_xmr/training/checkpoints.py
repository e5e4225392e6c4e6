"""Checkpoints of a training that can be killed at any moment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import tensorflow as tf

from data_pipelines.errors import UserError
from data_pipelines.files import write_aside
from keras_xmr.retriever import Retriever

_VARIABLES = "variables.json"


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        phase: The phase it is in.
        step: Steps done, over all phases.
        best: The best value of the monitored metric so far.
        best_step: The step of that value.
    """

    phase: int = 0
    step: int = 0
    best: float = float("-inf")
    best_step: int = 0


class Checkpoints:
    """Saves and restores model, optimizer and progress together.

    A checkpoint is written aside and then named by an atomic rename, so a kill in the middle
    leaves the one before it.

    Args:
        folder: Where they are kept.
        model: The model.
        keep: How many are kept.
    """

    def __init__(self, folder: Path, model: Retriever, keep: int = 2) -> None:
        self.folder = folder
        self.model = model
        self.keep = keep
        self.progress = Progress()
        self._state = tf.Variable("", dtype=tf.string, name="progress")

    def peek(self) -> Progress:
        """The progress of the newest checkpoint; the very beginning without one.

        Raises:
            CheckpointError: If the checkpoint is of another model.
        """
        newest = tf.train.latest_checkpoint(str(self.folder))
        if newest is None:
            return Progress()
        self._compare()
        tf.train.Checkpoint(progress=self._state).restore(newest).expect_partial()
        return Progress(**json.loads(self._state.numpy()))

    def restore_model(self) -> None:
        """Restores the model of the newest checkpoint, and the progress, but no optimizer.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(tf.train.Checkpoint(progress=self._state, **_variables(self.model)))

    def start_phase(self) -> None:
        """Begins to save the optimizer too, once a phase has compiled the model with it."""
        optimizer = self.model.optimizer
        optimizer.build(self.model.trainable_variables)
        # Lists of variables, not the objects that hold them: what Keras tracks of an object
        # depends on what has been frozen in this process before.
        self._checkpoint = tf.train.Checkpoint(
            progress=self._state,
            optimizer=[variable.value for variable in optimizer.variables],
            **_variables(self.model),
        )
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(self.folder), self.keep)

    def restore(self) -> None:
        """Restores the model, the optimizer and the progress of the newest checkpoint.

        Raises:
            CheckpointError: If it does not fit.
        """
        self._restore(self._checkpoint)

    def _restore(self, checkpoint: tf.train.Checkpoint) -> None:
        newest = tf.train.latest_checkpoint(str(self.folder))
        try:
            checkpoint.restore(newest).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise CheckpointError(f"{newest} does not fit this model: {error}") from None
        self.progress = Progress(**json.loads(self._state.numpy()))

    def save(self) -> None:
        """Saves the state as it is now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._state.assign(json.dumps(asdict(self.progress)))
        write_aside(self.folder / _VARIABLES, json.dumps(_shapes(self.model)).encode())
        self._manager.save(checkpoint_number=self.progress.step)

    def _compare(self) -> None:
        """Raises where the variables of the checkpoint are not those of the model."""
        path = self.folder / _VARIABLES
        saved = json.loads(path.read_bytes()) if path.exists() else {}
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


def save_weights(model: Retriever, path: Path) -> None:
    """Writes the weights of a model, without its optimizer, to a file that appears whole."""
    aside = path.with_name(f".{path.name}")
    model.without_optimizer().save_weights(aside)
    os.replace(aside, path)


def _parts(model: Retriever) -> dict[str, list[keras.Variable]]:
    """Everything of a model that a checkpoint keeps."""
    return {
        "image_tower": model.image_tower.variables,
        "text_tower": model.text_tower.variables,
        "matcher": model.matcher.variables,
        "objective": model.objective.variables,
        "notes": [model.global_step, model.last_values, model.bad_step, model.bad_part],
    }


def _variables(model: Retriever) -> dict[str, list[tf.Variable]]:
    return {name: [v.value for v in variables] for name, variables in _parts(model).items()}


def _shapes(model: Retriever) -> dict[str, list[int]]:
    return {
        f"{name}/{number}/{variable.name}": list(variable.shape)
        for name, variables in _parts(model).items()
        for number, variable in enumerate(variables)
    }
