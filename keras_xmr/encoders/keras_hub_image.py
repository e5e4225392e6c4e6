"""Image backbones of KerasHub."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from data_pipelines.option_types import PositiveInt
from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec, synchronize
from keras_xmr.encoders.pretrained.presets import Preset, weight_files
from keras_xmr.layers import ImageBackbone

_KEY = "model.image.encoder"


@dataclass(kw_only=True, eq=False)
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
        output: `tokens` gives the features of all positions of the feature map, or of all tokens, a
            class token first. `pooled` gives one vector, which any pooling passes on: the class
            token or the mean, and the embedding of CLIP and of SigLIP in their joint space.
        grid: Rows and columns to which a feature map is averaged by area, which makes attention
            cheaper; null keeps it. Only for presets with a feature map.
        levels: Levels of the feature pyramid of a convolutional preset that are concatenated, such
            as [4, 5]: 5 is the last map, 4 the last of twice its size, which has more of texture
            and small things; without `grid` they are averaged to one position. Null takes the
            last map alone.
        mirror: Encodes the mirror image of each photo, too; its positions come last. Takes twice
            the time. With the pooling `projection`, set its `views` to 2.
    """

    CONTRACT = EncoderContract(
        side="image", reads="pixels", when=(({"output": "pooled"}, {"local": False}),)
    )

    preset: str = "resnet_50_imagenet"
    weights: str | None = "preset"
    output: Literal["tokens", "pooled"] = "tokens"
    grid: PositiveInt | None = None
    levels: tuple[PositiveInt, ...] | None = None
    mirror: bool = False

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Pixels (B, H, W, 3) to features (B, L, F) or (B, 1, F), without a mask."""
        preset = Preset(self.preset, "image")
        backbone, linear = preset.tower(self.weights if spec.pretrained else None)
        converter = preset.image_converter()
        backbone = _at_resolution(backbone, self.preset, tuple(inputs.shape[1:]))
        projects = self.output == "pooled" and linear is not None
        self._check_maps(backbone)
        layer = ImageBackbone(
            backbone,
            scale=_numbers(converter.scale),
            offset=_numbers(converter.offset),
            output=self.output,
            grid=self.grid,
            levels=self.levels,
            mirror=self.mirror,
            projection=linear.units if projects else None,
            name="encoder",
        )
        synchronize(layer.network)
        features = layer(inputs)
        if projects:
            layer.linear.set_weights(linear.get_weights())
        return features, None

    def _check_maps(self, backbone: Any) -> None:
        makes_map = len(getattr(backbone.output, "shape", ())) == 4
        if self.grid is not None and not makes_map:
            raise EncoderError(
                f"{_KEY}.grid: {self.preset} makes tokens, and no feature map; leave it out"
            )
        if self.mirror and self.output == "pooled":
            raise EncoderError(f"{_KEY}.mirror: only output: tokens has positions of both images")
        if self.levels is None:
            return
        known = sorted(getattr(backbone, "pyramid_outputs", {}))
        wrong = [level for level in self.levels if f"P{level}" not in known]
        if wrong or not self.levels:
            has = f"has the levels {', '.join(known)}" if known else "has no feature pyramid"
            raise EncoderError(
                f"{_KEY}.levels: {list(self.levels)} does not fit {self.preset}, which {has}; "
                "write null for the last map"
            )

    def weight_files(self) -> list[Path]:
        """The files of a preset that is a folder."""
        return weight_files(self.preset, self.weights)


def _numbers(value: Any) -> float | list[float] | None:
    """One number, or one for each channel, of a config."""
    return None if value is None else np.asarray(value, np.float64).tolist()


def _at_resolution(backbone: Any, preset: str, shape: tuple[int, int, int]) -> Any:
    """A backbone of KerasHub with the same weights for images of another size.

    Embeddings of positions are resized as an image would be, bicubically; those of class tokens
    stay (Dosovitskiy et al. 2021, section 3.2).

    Args:
        backbone: The backbone.
        preset: Its preset, for messages.
        shape: (H, W, 3).

    Raises:
        EncoderError: If it cannot see such images.
    """
    before = tuple(backbone.inputs[0].shape[1:])
    if before == shape:
        return backbone
    config = backbone.get_config()
    advice = (
        f"{_KEY}.preset: {preset}: it sees images of {_size(before)}, not of {_size(shape)}; set "
        f"data.image.size to {before[0]}"
    )
    if "image_shape" not in config:
        if None in before:
            return backbone
        raise EncoderError(advice)
    try:
        resized = type(backbone).from_config({**config, "image_shape": shape})
        for old, new in zip(backbone.weights, resized.weights, strict=True):
            new.assign(_moved(old, new))
    except ValueError as error:
        raise EncoderError(f"{advice} ({error})") from None
    return resized


def _moved(old: keras.Variable, new: keras.Variable) -> Any:
    """The value of a variable for another resolution."""
    value = keras.ops.convert_to_numpy(old)
    if old.shape == new.shape:
        return value
    if new.name == "position_ids":
        return np.arange(new.shape[-1], dtype=value.dtype)[None]
    if "position_embedding" not in new.path or len(old.shape) != len(new.shape):
        raise ValueError(f"{new.path} is {list(old.shape)} there and {list(new.shape)} here")
    count = new.shape[-2]
    classes = old.shape[-2] - math.isqrt(old.shape[-2]) ** 2
    before, after = (math.isqrt(n - classes) for n in (old.shape[-2], count))
    if classes + after**2 != count:
        raise ValueError(f"{new.path} has {count} positions, which do not form a square")
    flat = value.reshape(old.shape[-2:])
    grid = keras.ops.image.resize(
        flat[classes:].reshape(before, before, -1).astype("float32"),
        (after, after),
        interpolation="bicubic",
        antialias=after < before,
        data_format="channels_last",
    )
    grid = keras.ops.convert_to_numpy(grid).reshape(after**2, -1)
    return np.concatenate([flat[:classes], grid]).reshape(new.shape)


def _size(shape: tuple[int | None, ...]) -> str:
    return " x ".join("any" if n is None else str(n) for n in shape[:2])
