"""Weights that a training leaves out of its checkpoints: of frozen encoders that files hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

import keras
import tensorflow as tf

from data_pipelines.files import checksum
from keras_xmr.config.registry import build
from keras_xmr.config.schema import Config
from keras_xmr.model.retriever import Retriever

SIDES = ("image", "text")


class LeftOut(tf.train.experimental.PythonState):
    """The encoders that a checkpoint leaves out, as it keeps them.

    Attributes:
        checksums: That of the files which hold the encoder, by side, "image" or "text".
    """

    def __init__(self, checksums: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.checksums = dict(checksums or {})

    def only(self, sides: Collection[str]) -> LeftOut:
        """Those of some sides."""
        return LeftOut({side: sum_ for side, sum_ in self.checksums.items() if side in sides})

    def weights(self, model: Retriever) -> list[keras.Variable]:
        """The weights that are left out of a model.

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


def at_start(config: Config) -> LeftOut:
    """What a training that begins now may leave out, for as long as it stays frozen.

    It is what the first phase freezes and files hold that the config names: nothing of a model that
    begins with the weights of a run.
    """
    if config.train.initial_weights is not None:
        return LeftOut()
    first = config.train.phases[:1]
    frozen = [side for side in SIDES for phase in first if phase.freezes_encoder(side)]
    found = {side: _checksum(config, side) for side in frozen}
    return LeftOut({side: digest for side, digest in found.items() if digest})


def in_checkpoint(path: str) -> LeftOut:
    """What a checkpoint leaves out; nothing in those that know nothing of it."""
    found = LeftOut()
    tf.train.Checkpoint(left_out=found).read(path).expect_partial()
    return found


def changed(left_out: LeftOut, config: Config) -> str:
    """What is wrong with the files that hold what was left out; nothing if they are the same."""
    for side, expected in left_out.checksums.items():
        found = _checksum(config, side)
        if found != expected:
            wrong = "are other files now" if found else "are not there now"
            return f"of model.{side}.encoder, which are in the files of its preset: they {wrong}"
    return ""


def _checksum(config: Config, side: str) -> str:
    """SHA-256 of all files that hold an encoder; nothing if there are none."""
    files = build("encoder", getattr(config.model, side).encoder).weight_files()
    if not files or not all(file.is_file() for file in files):
        return ""
    return hashlib.sha256("".join(map(checksum, files)).encode()).hexdigest()
