"""Image backbones of KerasHub."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import keras

from keras_xmr.config.contracts import EncoderContract
from keras_xmr.config.option_types import PositiveInt
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec, synchronize
from keras_xmr.encoders.pretrained.presets import Preset, PresetError, weight_files
from keras_xmr.encoders.pretrained.resolution import ResolutionError, at_resolution
from keras_xmr.layers import ImageBackbone

_KEY = "model.image.encoder"


class KerasHubImage(Encoder):
    """An image backbone of KerasHub: ResNet, ViT and others, or the image tower of CLIP or SigLIP.

    Pixels are scaled as the preset says. At another resolution than that of the preset, the
    embeddings of positions are interpolated. While it is frozen it works as in inference.

    Args:
        preset: A name of KerasHub, such as `resnet_50_imagenet`, `vit_base_patch16_224_imagenet`
            or `clip_vit_base_patch16`, an address (`hf://user/model`, `kaggle://...`), or a
            folder that `save_to_preset` wrote or that is in the layout of transformers
            (config.json, model.safetensors).
        weights: `preset` loads the weights of the preset; a path loads a file of weights
            (`.weights.h5` or `.keras`) of the whole backbone; null starts at random.
        output: `tokens` gives the features of all places of the feature map, or of all tokens, a
            class token first. `pooled` gives one vector, which any pooling passes on: the class
            token or the mean, and the embedding of CLIP and of SigLIP in their joint space.
        grid: A feature map is averaged by area to so many rows and columns, which makes what
            attends to its places cheaper; null keeps it. Only for presets that make a map.
    """

    CONTRACT = EncoderContract(
        side="image", reads="pixels", when=(({"output": "pooled"}, {"local": False}),)
    )

    def __init__(
        self,
        *,
        preset: str = "resnet_50_imagenet",
        weights: str | None = "preset",
        output: Literal["tokens", "pooled"] = "tokens",
        grid: PositiveInt | None = None,
    ) -> None:
        self.preset = preset
        self.weights = weights
        self.output = output
        self.grid = grid

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Pixels (B, H, W, 3) to features (B, L, F) or (B, 1, F), without a mask."""
        try:
            preset = Preset(self.preset, "image")
            whole = preset.backbone(self.weights if spec.pretrained else None)
            backbone, linear = _image_part(whole, self.preset)
            converter = preset.image_converter()
        except PresetError as error:
            raise EncoderError(f"{_KEY}.{error}") from None
        try:
            backbone = at_resolution(backbone, tuple(inputs.shape[1:]))
        except ResolutionError as error:
            raise EncoderError(f"{_KEY}.preset: {self.preset}: {error}") from None
        projects = self.output == "pooled" and linear is not None
        layer = ImageBackbone(
            backbone,
            scale=_numbers(converter.scale),
            offset=_numbers(converter.offset),
            output=self.output,
            grid=self.grid,
            projection=linear.units if projects else None,
            name="encoder",
        )
        if self.grid is not None and len(layer.network.output.shape) != 4:
            raise EncoderError(
                f"{_KEY}.grid: {self.preset} makes tokens, and no feature map; leave it out"
            )
        synchronize(layer.network)
        features = layer(inputs)
        if projects:
            layer.linear.set_weights(linear.get_weights())
        return features, None

    def weight_files(self) -> list[Path]:
        """Those of a preset that is a folder."""
        return weight_files(self.preset, self.weights)


def _image_part(backbone: Any, preset: str) -> tuple[Any, Any]:
    """What of a backbone sees images, and its linear layer into a joint space, or None."""
    name = type(backbone).__name__
    if name == "CLIPBackbone":
        return backbone.vision_encoder, backbone.vision_projection
    if name == "SigLIPBackbone":
        return backbone.vision_encoder, None
    outputs = backbone.output
    if (
        len(backbone.inputs) != 1
        or len(backbone.inputs[0].shape) != 4
        or not isinstance(outputs, keras.KerasTensor)
    ):
        raise EncoderError(
            f"{_KEY}.preset: {preset} is a {name}, which does not make one feature map of one "
            "image; ResNet, ViT, DINOv2, CLIP, SigLIP and others do"
        )
    return backbone, None


def _numbers(value: Any) -> float | list[float] | None:
    """One number, or one for each channel, of a config."""
    if value is None or isinstance(value, int | float):
        return value
    return [float(number) for number in value]
