"""The image tower of ProLIP."""

from __future__ import annotations

from typing import Any

from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import InputSpec
from keras_xmr.encoders.pretrained.prolip import ProlipError, ProlipFolder
from keras_xmr.encoders.prolip_base import ProlipEncoder
from keras_xmr.layers.prolip import ProlipTower


class ProlipImage(ProlipEncoder):
    """The image tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes pixels (B, H, W, 3) to (B, 2, D): two positions, for the head `prolip`.
    """

    CONTRACT = EncoderContract(side="image", reads="pixels")

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        if inputs.shape[1] != folder.image_size:
            raise ProlipError(
                f"this ProLIP sees {folder.image_size} pixels, and data.image.size is "
                f"{inputs.shape[1]}"
            )
        return folder.image_tower(name="encoder")
