"""Checkpoint files in a folder, which of them are readable, and frozen weights outside of them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import keras
import tensorflow as tf

from keras_xmr.config.schema import Config
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import checksum

SIDES = ("image", "text")


class ExternalWeights(tf.train.experimental.PythonState):
    """The encoders with weights in files of a preset, as a checkpoint records them.

    Attributes:
        checksums: Checksum of the files of the encoder, by side, "image" or "text".
    """

    def __init__(self, checksums: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.checksums = dict(checksums or {})

    def only(self, sides: Collection[str]) -> ExternalWeights:
        """Selects those of some sides."""
        return ExternalWeights(
            {side: sum_ for side, sum_ in self.checksums.items() if side in sides}
        )

    def weights(self, model: Retriever) -> list[keras.Variable]:
        """The weights of a model that checkpoints do not store.

        The states of its random generators are not among them: they are in no preset.
        """
        towers = {"image": model.image_tower, "text": model.text_tower}
        return [
            weight
            for side in sorted(self.checksums)
            for weight in towers[side].get_layer("encoder").weights
        ]

    def serialize(self) -> str:
        return json.dumps(self.checksums, sort_keys=True)

    def deserialize(self, string_value: str) -> None:
        self.checksums = json.loads(string_value)


def _checksum(config: Config, side: str) -> str:
    """SHA-256 of all files of the weights of an encoder; empty if it has none."""
    files = config.model.towers[side].encoder.build().weight_files()
    if not files or not all(file.is_file() for file in files):
        return ""
    return hashlib.sha256("".join(map(checksum, files)).encode()).hexdigest()


_LOGGER = logging.getLogger(__name__)

_KEPT = 2
"""Number of checkpoints that are kept."""

_FILE = re.compile(r"ckpt-(\d+)\.(index|data-\d+-of-\d+)")


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message names the reason and the remedy."""


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
            CheckpointError: If all are damaged or missing.
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
                f"{'; '.join(reasons) or 'the folder has none'}. Delete that folder to train from "
                "the start"
            )
        return self.newest

    def external(self) -> ExternalWeights:
        """The encoders that the newest checkpoint does not store; none in those of early versions.

        Raises:
            CheckpointError: If all checkpoints are damaged or missing.
        """
        external = ExternalWeights()
        # Named as in the checkpoints of earlier versions.
        tf.train.Checkpoint(left_out=external).read(self.find_newest()).expect_partial()
        return external

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


def find_external_weights(config: Config, files: CheckpointFiles | None = None) -> ExternalWeights:
    """Finds the encoders that checkpoints need not store.

    They are frozen in the first phase, and their weights are in files that the config names. A
    model that begins with the weights of a run has none.

    Args:
        config: The config.
        files: The checkpoints of a training that has begun, of which the newest decides.

    Raises:
        CheckpointError: If the files of their weights are missing, or have changed.
    """
    if files is None:
        phases = config.train.phases[:1] if config.train.initial_weights is None else ()
        frozen = [side for side in SIDES for phase in phases if phase.freezes_encoder(side)]
        digests = {side: _checksum(config, side) for side in frozen}
        return ExternalWeights({side: digest for side, digest in digests.items() if digest})
    external = files.external()
    for side, expected in external.checksums.items():
        digest = _checksum(config, side)
        if digest != expected:
            wrong = "are other files now" if digest else "are not there now"
            raise CheckpointError(
                f"the checkpoints in {files.folder} do not store the weights of "
                f"model.{side}.encoder, which are in the files of its preset: they {wrong}. "
                f"Restore these files, or delete {files.folder} to train from the start"
            )
    return external
