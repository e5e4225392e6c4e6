"""The image tower of ProLIP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder, weight_files


class ProlipImage(Encoder):
    """The image tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    Its features are two positions, for the head `prolip`.

    Args:
        folder: A folder with `config.json` and `model.safetensors` of a published ProLIP.
        published: Whether the published weights are loaded; or else it starts at random, and the
            folder needs only `config.json`.
    """

    SIDE = "image"
    INPUT = "pixels"

    def __init__(self, *, folder: str = "data/raw/prolip", published: bool = True) -> None:
        self.folder = folder
        self.published = published

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Pixels (B, H, W, 3) to (B, 2, D), without a mask."""
        try:
            folder = ProlipFolder(self.folder)
            if inputs.shape[1] != folder.image_size:
                raise ProlipError(
                    f"this ProLIP sees {folder.image_size} pixels, and data.image.size is "
                    f"{inputs.shape[1]}"
                )
            tower = folder.image_tower(name="encoder")
            features = tower(inputs)
            if self.published and spec.pretrained:
                folder.load(tower)
        except ProlipError as error:
            raise EncoderError(f"model.image.encoder.folder: {error}") from None
        return features, None

    def weight_files(self) -> list[Path]:
        """Those of the folder."""
        return weight_files(self.folder) if self.published else []
