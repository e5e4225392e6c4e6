"""The files of checkpoints in a folder, and which of them can be read."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import tensorflow as tf

from data_pipelines.errors import UserError
from keras_xmr.training.left_out import LeftOut, in_checkpoint

_LOGGER = logging.getLogger(__name__)

_FILE = re.compile(r"ckpt-(\d+)\.(index|data-\d+-of-\d+)")


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


class CheckpointFiles:
    """The checkpoints of a folder.

    Args:
        folder: Where they are kept.
        keep: How many are kept.

    Attributes:
        newest: The path of the newest one that is whole, once `find_newest` was called.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self.newest = ""
        self._damaged: list[str] = []

    def path(self, step: int) -> str:
        """The path of the checkpoint of a step."""
        return str(self.folder / f"ckpt-{step}")

    def find_newest(self) -> str:
        """The path of the newest checkpoint that is whole; older ones stand in for damaged ones.

        Raises:
            CheckpointError: If there is none.
        """
        says: list[str] = []
        for path in self._found() if not self.newest else ():
            damage = _damage(path)
            if not damage:
                if says:
                    _LOGGER.warning("%s; going on from %s", "; ".join(says), path)
                self.newest = path
                break
            self._damaged.append(path)
            says.append(f"{path} is damaged: {damage}")
        if not self.newest:
            raise CheckpointError(
                f"no checkpoint of {self.folder} can be read: {'; '.join(says) or 'there is none'}"
                ". Delete that folder, and the training begins anew"
            )
        return self.newest

    def left_out(self) -> LeftOut:
        """What the newest checkpoint leaves out.

        Raises:
            CheckpointError: If there is no checkpoint that can be read.
        """
        return in_checkpoint(self.find_newest())

    def written(self, path: str) -> None:
        """Takes a checkpoint that was just written as the newest, and removes those before it.

        The damaged ones go, and of the others those that are older than what is kept.
        """
        self.newest = path
        damaged = [other for other in self._damaged if other != path]
        whole = [other for other in self._found() if other not in damaged]
        for other in damaged + whole[self.keep :]:
            for file in self.folder.glob(f"{Path(other).name}.*"):
                file.unlink()
        self._damaged = []

    def _found(self) -> list[str]:
        """The checkpoints of which there is any file, the newest first."""
        matches = [_FILE.fullmatch(path.name) for path in self.folder.glob("ckpt-*")]
        numbers = {int(match[1]) for match in matches if match}
        return [self.path(number) for number in sorted(numbers, reverse=True)]


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
