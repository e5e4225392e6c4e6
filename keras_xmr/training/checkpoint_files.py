"""Checkpoint files in a folder, and which of them are readable."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import tensorflow as tf

from data_pipelines.errors import UserError
from keras_xmr.training.external_weights import ExternalWeights, read_external_weights

_LOGGER = logging.getLogger(__name__)

_KEPT = 2
"""Number of checkpoints that are kept."""

_FILE = re.compile(r"ckpt-(\d+)\.(index|data-\d+-of-\d+)")


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


class CheckpointFiles:
    """The checkpoints of a folder.

    Args:
        folder: Where they are kept.

    Attributes:
        newest: The path of the newest undamaged one, once `find_newest` was called.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = ""
        self._damaged: list[str] = []

    def path(self, step: int) -> str:
        """The path of the checkpoint of a step."""
        return str(self.folder / f"ckpt-{step}")

    def find_newest(self) -> str:
        """Finds the newest checkpoint that is not damaged.

        Raises:
            CheckpointError: If there is none.
        """
        reasons: list[str] = []
        for path in self._list() if not self.newest else ():
            damage = _damage(path)
            if not damage:
                if reasons:
                    _LOGGER.warning("%s; resuming from %s", "; ".join(reasons), path)
                self.newest = path
                break
            self._damaged.append(path)
            reasons.append(f"{path} is damaged: {damage}")
        if not self.newest:
            raise CheckpointError(
                f"no checkpoint of {self.folder} can be read: "
                f"{'; '.join(reasons) or 'there is none'}. Delete that folder to train from the "
                "start"
            )
        return self.newest

    def external(self) -> ExternalWeights:
        """The encoders that the newest checkpoint does not store.

        Raises:
            CheckpointError: If there is no checkpoint that can be read.
        """
        return read_external_weights(self.find_newest())

    def register(self, path: str) -> None:
        """Registers a new checkpoint as the newest, and removes damaged and old ones."""
        self.newest = path
        damaged = [other for other in self._damaged if other != path]
        intact = [other for other in self._list() if other not in damaged]
        for other in damaged + intact[_KEPT:]:
            for file in self.folder.glob(f"{Path(other).name}.*"):
                file.unlink()
        self._damaged = []

    def _list(self) -> list[str]:
        """All checkpoints that have any file, newest first."""
        matches = [_FILE.fullmatch(path.name) for path in self.folder.glob("ckpt-*")]
        numbers = {int(match[1]) for match in matches if match}
        return [self.path(number) for number in sorted(numbers, reverse=True)]


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
