"""What both encoders of ProLIP share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder, weight_files
from keras_xmr.layers.prolip import ProlipTower


class ProlipEncoder(Encoder):
    """A tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    Its features are two positions, for the head `prolip`. A subclass implements `tower`.

    Args:
        folder: A folder with `config.json` and `model.safetensors` of a published ProLIP, and for
            the text tower with `spiece.model`, the tokenizer of SigLIP.
        published: Whether the published weights are loaded; or else it starts at random, and the
            folder needs no `model.safetensors`.
    """

    CONTRACT = EncoderContract(positions=2)

    def __init__(self, *, folder: str = "data/raw/prolip", published: bool = True) -> None:
        self.folder = folder
        self.published = published

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        """The tower of a folder, with random weights.

        Raises:
            ProlipError: If it does not fit the inputs.
        """
        raise NotImplementedError

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Features (B, 2, D), without a mask."""
        with self.read() as folder:
            tower = self.tower(folder, inputs, spec)
            features = tower(inputs)
            if self.published and spec.pretrained:
                folder.load(tower)
        return features, None

    def weight_files(self) -> list[Path]:
        """Those of the folder."""
        return weight_files(self.folder) if self.published else []

    @contextmanager
    def read(self) -> Iterator[ProlipFolder]:
        """Opens the folder; what cannot be used of it is told with the key of the config."""
        try:
            yield ProlipFolder(self.folder)
        except ProlipError as error:
            raise EncoderError(f"model.{self.CONTRACT.side}.encoder.folder: {error}") from None
