"""Small random models in the files of transformers, with what transformers makes of them."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import safetensors.numpy

from keras_xmr.encoders import InputSpec, KerasHubImage, KerasHubText

GOLDEN = Path(__file__).parent.parent / "golden"


class Case:
    """A family: "clip", "siglip" or "siglip2".

    Args:
        name: The family.
        folder: Where the files of the model are written.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._arrays = dict(np.load(GOLDEN / f"{name}.npz"))
        folder.mkdir(parents=True, exist_ok=True)
        for key, value in self._arrays.items():
            if key.startswith("file_"):
                (folder / key.removeprefix("file_")).write_bytes(value.tobytes())
        weights = {k[6:]: v for k, v in self._arrays.items() if k.startswith("param_")}
        safetensors.numpy.save_file(weights, folder / "model.safetensors")

    def array(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def photo(self, number: int) -> bytes:
        """A JPEG file."""
        return self._arrays[f"in_photo_{number}"].tobytes()

    def pixels(self) -> np.ndarray:
        """What transformers sees of the photos, before it scales the numbers: uint8."""
        told = self._arrays["file_preprocessor_config.json"].tobytes().decode()
        options = json.loads(told)
        mean, deviation = np.array(options["image_mean"]), np.array(options["image_std"])
        pixels = self.array("out_pixels").transpose(0, 2, 3, 1) * deviation + mean
        return np.round(pixels * 255).astype(np.uint8)

    @cached_property
    def tokenizer(self) -> Any:
        return KerasHubText(preset=str(self.folder)).tokenizer(64)

    def image_model(self, **spec: Any) -> keras.Model:
        """From pixels to embeddings (B, 1, D)."""
        inputs = keras.Input((32, 32, 3), dtype="uint8")
        encoder = KerasHubImage(preset=str(self.folder), output="pooled")
        return keras.Model(inputs, encoder.features(inputs, InputSpec(image_size=32, **spec))[0])

    def text_model(self) -> keras.Model:
        """From ids to embeddings (B, 1, D) and their mask."""
        inputs = keras.Input((None,), dtype="int32")
        encoder = KerasHubText(preset=str(self.folder), output="pooled")
        spec = InputSpec(vocabulary=self.tokenizer.vocabulary)
        return keras.Model(inputs, encoder.features(inputs, spec))


def without(folder: Path, *names: str, **more: np.ndarray) -> None:
    """Takes tensors out of a file of weights, and puts others in."""
    path = folder / "model.safetensors"
    weights = {k: v for k, v in safetensors.numpy.load_file(path).items() if k not in names}
    safetensors.numpy.save_file(weights | more, path)
