"""Backbones of KerasHub for images and for text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from data_pipelines.text import Tokenizer
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec, synchronize
from keras_xmr.encoders.pretrained.presets import SIGLIP, Preset
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.layers import BagOfWords, ImageBackbone, TextBackbone
from keras_xmr.layers.backbone import number_of_layers
from keras_xmr.parts.contracts import EncoderContract
from keras_xmr.parts.option_types import NonNegativeInt, PositiveInt, PositiveInts
from keras_xmr.parts.tensors import Shape, Tensor


class _KerasHub(Encoder):
    """A backbone of a preset of KerasHub; a subclass has `preset`, `weights` and `output`."""

    preset: str
    weights: str | None
    output: str

    def run(self, make: Any, backbone: Any, linear: Any, inputs: Tensor, **options: Any) -> Tensor:
        """Makes the layer of a backbone, and calls it.

        Args:
            make: The class of the layer.
            backbone: The backbone.
            linear: The linear layer into a joint space, where pooled vectors go, or None.
            inputs: The inputs of the layer.
            **options: Further options of the layer.
        """
        linear = linear if self.output == "pooled" else None
        width = None if linear is None else linear.units
        layer = make(backbone, output=self.output, projection=width, name="encoder", **options)
        synchronize(layer.network)
        outputs = layer(inputs)
        if linear is not None:
            layer.linear.set_weights(linear.get_weights())
        return outputs

    def _unfit(self, option: str, has: str, last: str) -> EncoderError:
        """Returns the error of an option with numbers of layers that the preset lacks."""
        text = f"{list(getattr(self, option))} does not fit {self.preset}, which {has}"
        return self.error(option, f"{text}; write null for the last {last}")


@dataclass(kw_only=True, eq=False)
class KerasHubImage(_KerasHub):
    """An image backbone of KerasHub: ResNet, ViT and others, or the image tower of CLIP or SigLIP.

    Pixels are scaled as the preset says. At another resolution than the preset's, the
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
            the time. With the pooling `projection`, set its `views` to 2. While the encoder trains,
            one of both is drawn for each photo.
        frozen_levels: Levels of the feature pyramid of a convolutional preset, from the first, with
            layers that never train, which saves time: 3 leaves the layers behind the map of an
            eighth of the size.
        frozen_batch_normalization: Whether batch normalisation stays as the preset has it, also
            where the encoder trains.
    """

    CONTRACT = EncoderContract(
        side="image", reads="pixels", when=(({"output": "pooled"}, {"local": False}),)
    )

    preset: str = "resnet_50_imagenet"
    weights: str | None = "preset"
    output: Literal["tokens", "pooled"] = "tokens"
    grid: PositiveInt | None = None
    levels: PositiveInts | None = None
    mirror: bool = False
    frozen_levels: NonNegativeInt = 0
    frozen_batch_normalization: bool = False

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Pixels (B, H, W, 3) to features (B, L, F) or (B, 1, F), without a mask."""
        preset = Preset(self.preset, "image")
        backbone, linear = preset.tower(self.weights if spec.pretrained else None)
        converter = preset.image_converter()
        backbone = self._at_resolution(backbone, tuple(inputs.shape[1:]))
        self._check_maps(backbone)
        features = self.run(
            ImageBackbone,
            backbone,
            linear,
            inputs,
            scale=_numbers(converter.scale),
            offset=_numbers(converter.offset),
            grid=self.grid,
            levels=self.levels,
            mirror=self.mirror,
            frozen_levels=self.frozen_levels,
            frozen_batch_normalization=self.frozen_batch_normalization,
        )
        return features, None

    def _check_maps(self, backbone: Any) -> None:
        makes_map = len(getattr(backbone.output, "shape", ())) == 4
        if self.grid is not None and not makes_map:
            raise self.error(
                "grid", f"{self.preset} makes tokens, and no feature map; leave it out"
            )
        if self.mirror and self.output == "pooled":
            raise self.error("mirror", "only output: tokens has positions of both images")
        known = sorted(getattr(backbone, "pyramid_outputs", {}))
        has = f"has the levels {', '.join(known)}" if known else "has no feature pyramid"
        if self.frozen_levels and f"P{self.frozen_levels}" not in known:
            text = f"{self.frozen_levels} does not fit {self.preset}, which {has}"
            raise self.error("frozen_levels", f"{text}; write 0 to train all layers")
        if self.levels is None:
            return
        if not self.levels or any(f"P{level}" not in known for level in self.levels):
            raise self._unfit("levels", has, "map")

    def _at_resolution(self, backbone: Any, shape: Shape) -> Any:
        """Returns a backbone of KerasHub with the same weights for images of another size.

        Embeddings of positions are resized as an image would be, bicubically; class tokens
        stay (Dosovitskiy et al. 2021, section 3.2).

        Args:
            backbone: The backbone.
            shape: (H, W, 3).

        Raises:
            EncoderError: If it cannot see such images.
        """
        before = tuple(backbone.inputs[0].shape[1:])
        if before == shape:
            return backbone
        config = backbone.get_config()
        advice = (
            f"{self.preset}: it sees images of {_size(before)}, not of {_size(shape)}; set "
            f"data.image.size to {before[0]}"
        )
        if "image_shape" not in config:
            if None in before:
                return backbone
            raise self.error("preset", advice)
        try:
            resized = type(backbone).from_config({**config, "image_shape": shape})
            for old, new in zip(backbone.weights, resized.weights, strict=True):
                new.assign(_moved(old, new))
        except ValueError as error:
            raise self.error("preset", f"{advice} ({error})") from None
        return resized


def _numbers(value: object) -> float | list[float] | None:
    """Returns one number, or one for each channel, of a config."""
    return None if value is None else np.asarray(value, np.float64).tolist()


def _moved(old: keras.Variable, new: keras.Variable) -> Any:
    """Returns the value of a variable for another resolution."""
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


BAG_LENGTH = 0.5
"""The length of a bag of words, where the average of a layer has a length of 1."""


@dataclass(kw_only=True, eq=False)
class KerasHubText(_KerasHub):
    """A text backbone of KerasHub: the BERT family, or the text tower of CLIP or SigLIP.

    The tokenizer of the backbone is used in training, in evaluation and in the exported model. A
    frozen backbone works as in inference.

    Args:
        preset: A name of KerasHub, such as `bert_base_en_uncased` or `clip_vit_base_patch16`, an
            address (`hf://user/model`, `kaggle://...`), or a folder that `save_to_preset` wrote
            or that is in the layout of transformers (config.json, model.safetensors).
        weights: `preset` loads the weights of the preset; a path loads a file of weights
            (`.weights.h5` or `.keras`) of the whole backbone; null starts at random.
        output: `tokens` gives the features of all tokens. `average` gives one vector: their
            average, for each of `layers` on the unit sphere, which takes less space where features
            are stored. `pooled` gives one vector, which any pooling passes on: the first token of
            the BERT family, and the embedding of CLIP and of SigLIP in their joint space.
        layers: Transformer layers, from 1, with features that are concatenated. Null takes the
            output of the backbone. Earlier layers have more of the words and less of the sentence.
        bag_of_words: With `output: average`, the number of most frequent tokens of the training
            captions of which a bag of words is appended: averages blur single words. 0 for none.
    """

    CONTRACT = EncoderContract(
        side="text",
        reads="words",
        when=(({"output": "pooled"}, {"local": False}), ({"output": "average"}, {"local": False})),
    )

    preset: str = "bert_base_en_uncased"
    weights: str | None = "preset"
    output: Literal["tokens", "average", "pooled"] = "tokens"
    layers: PositiveInts | None = None
    bag_of_words: NonNegativeInt = 0

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Ids (B, L), padded with -1, to features (B, L, F) or (B, 1, F), and their mask."""
        preset = Preset(self.preset, "text")
        backbone, linear = preset.tower(self.weights if spec.pretrained else None)
        if len(spec.vocabulary) > backbone.vocabulary_size:
            raise self.error(
                "preset",
                f"the tokenizer has {len(spec.vocabulary):,} tokens, but the backbone of "
                f"{self.preset} knows {backbone.vocabulary_size:,}; they do not belong together",
            )
        self._check_layers(backbone)
        # SigLIP 2 pads as Gemma does; others repeat the last token.
        is_gemma = type(backbone).__name__ == "SigLIPTextEncoder" and "<eos>" in spec.vocabulary
        pad = spec.vocabulary.index("<pad>") if is_gemma else None
        features, mask = self.run(
            TextBackbone, backbone, linear, inputs, layers=self.layers, pad=pad
        )
        if self.bag_of_words:
            # Not a part of "encoder": files of the preset do not have its vocabulary.
            size = backbone.vocabulary_size
            bag = BagOfWords(self.bag_of_words, size, name="bag_of_words")(inputs)
            features = ops.concatenate([features, BAG_LENGTH * bag[:, None]], axis=-1)
        return features, mask

    def _check_layers(self, backbone: keras.Model) -> None:
        if self.bag_of_words and self.output != "average":
            raise self.error("bag_of_words", "it needs output: average")
        if self.layers is None:
            return
        if self.output == "pooled":
            raise self.error("layers", "output: pooled takes no features of layers")
        count = number_of_layers(backbone)
        wrong = [number for number in self.layers if number > count]
        if wrong or not self.layers:
            has = f"has {count} layers" if count else "has no layers with numbered names"
            raise self._unfit("layers", has, "one")

    def tokenizer(self, max_words: int) -> Tokenizer:
        """Returns the tokenizer of the preset."""
        preset = Preset(self.preset, "text")
        tokenizer = preset.tokenizer()
        is_gemma = type(tokenizer).__name__ == "GemmaTokenizer"
        siglip2 = is_gemma and preset.class_name == SIGLIP
        return SubwordTokenizer(tokenizer, max_words, preset.max_tokens(), siglip2)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """Returns the tokenizer in the folder of a run."""
        return SubwordTokenizer.restore(run, max_words)
