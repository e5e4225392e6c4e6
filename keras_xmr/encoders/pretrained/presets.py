"""Presets of KerasHub: backbones with their tokenizers and converters."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import keras

from keras_xmr.encoders.base import EncoderError
from keras_xmr.encoders.pretrained.transformers import TwoTowers
from keras_xmr.encoders.pretrained.weights import WeightsError, differences, load_weights, whole
from keras_xmr.layers.keras_compat import all_layers, preset_loader
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.files import user_path

if TYPE_CHECKING:
    import keras_hub

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
CLIP, SIGLIP = "CLIPBackbone", "SigLIPBackbone"

_SAVE = 'python -c "import keras_hub as k; p = {preset!r}; {calls}"'
_CALL = "k.{part}.from_preset(p).save_to_preset('FOLDER')"
_COMPONENTS = {"text": ["tokenizers.Tokenizer"], "image": ["layers.ImageConverter"]}
_COMPONENTS["both"] = _COMPONENTS["text"] + _COMPONENTS["image"]
_TEXT_INPUTS = {"token_ids", "padding_mask"}


class Preset:
    """A preset of KerasHub.

    Args:
        name: A name of KerasHub, an address such as `hf://user/model` or `kaggle://...`, or a
            folder: as `save_to_preset` writes it, or with the `config.json` and
            `model.safetensors` of `transformers`.
        side: "text", "image" or "both", for `--model`; the option that error messages name.

    Raises:
        EncoderError: If the preset does not exist.
    """

    def __init__(self, name: str, side: str) -> None:
        import keras_hub

        self.name = name
        self.side = side
        self.folder = None if "://" in name else user_path(name)
        known = keras_hub.models.Backbone.presets
        if self.folder is None:
            self.source = name
        elif (self.folder / CONFIG).is_file():
            self.source = str(self.folder)
        elif self.folder.is_dir():
            raise self._error(
                f"the folder {name} has no {CONFIG}. It should be as `save_to_preset` of "
                f"KerasHub writes it, or hold the {CONFIG} and model.safetensors of transformers"
            )
        elif name in known:
            self.source = name
            self.folder = None
        else:
            near = get_close_matches(name, known, 4, 0.5)
            hint = f"; the nearest names are {', '.join(near)}" if near else ""
            raise self._error(f"{name!r} is neither a preset of KerasHub nor a folder{hint}")

    def _error(self, text: str, option: str = "preset") -> EncoderError:
        """Returns an error that begins with the key of the option, or with `--model`."""
        key = "--model" if self.side == "both" else f"model.{self.side}.encoder.{option}"
        return EncoderError(f"{key}: {text}")

    def backbone(self, weights: str | None) -> keras_hub.models.Backbone:
        """Returns the backbone, in the precision that is set.

        Args:
            weights: "preset" loads the weights of the preset, a path loads a file; None starts at
                random, and reads only the architecture.

        Raises:
            EncoderError: If it, or its weights, cannot be loaded.
        """
        if weights == "preset":
            with self._advice("weights"), whole(self._differences):
                return self._backbone(load_weights=True)
        with self._advice():
            backbone = self._backbone(load_weights=False)
        _number_positions(backbone)
        if weights is not None:
            try:
                load_weights(backbone, user_path(weights))
            except WeightsError as error:
                raise self._error(str(error), "weights") from None
        return backbone

    def tower(self, weights: str | None) -> tuple[Any, Tensor | None]:
        """Returns the part of the backbone for its side, and the linear layer into a joint
        space, or None.

        Args:
            weights: The weights of the whole backbone; see `backbone`.

        Raises:
            EncoderError: If it cannot be loaded, or is not a backbone for this side.
        """
        backbone = self.backbone(weights)
        name = type(backbone).__name__
        if name in (CLIP, SIGLIP):
            side = "vision" if self.side == "image" else "text"
            linear = getattr(backbone, f"{side}_projection", None)
            return getattr(backbone, f"{side}_encoder"), linear
        inputs = {tensor.name: len(tensor.shape) for tensor in backbone.inputs}
        makes_one = isinstance(backbone.output, keras.KerasTensor)
        if self.side == "image" and (list(inputs.values()) != [4] or not makes_one):
            raise self._error(
                f"{self.name} is a {name}, which does not make one feature map of one image; "
                "ResNet, ViT, DINOv2, CLIP, SigLIP and others do"
            )
        if self.side == "text" and inputs.keys() - {"segment_ids"} != _TEXT_INPUTS:
            raise self._error(
                f"{self.name} is a {name}, which takes {', '.join(sorted(inputs))}. Text "
                "backbones take token_ids and padding_mask: the BERT family, CLIP, SigLIP and "
                "others"
            )
        return backbone, None

    def _backbone(self, load_weights: bool) -> keras_hub.models.Backbone:
        import keras_hub

        policy = keras.config.dtype_policy()
        if self._converted is not None:
            backbone = self._converted.backbone(load_weights, policy.name)
            _number_positions(backbone)
        else:
            backbone = keras_hub.models.Backbone.from_preset(
                self.source, load_weights=load_weights, dtype=policy.name
            )
        if policy.name != "float32":
            for layer in all_layers(backbone):
                # The towers of CLIP keep the precision that they were saved in.
                layer.dtype_policy = policy
        return backbone

    def tokenizer(self) -> keras_hub.tokenizers.Tokenizer:
        """Returns the tokenizer.

        Raises:
            EncoderError: If it cannot be loaded.
        """
        if importlib.util.find_spec("tensorflow_text") is None:
            raise self._error(
                f"the tokenizer of {self.name} needs tensorflow-text, which is not "
                "installed and has no wheels for Windows; use Linux, macOS or WSL, or the encoder "
                "word_embedding with a file of GloVe vectors"
            )
        import keras_hub

        with self._advice():
            if self._converted is not None:
                return self._converted.tokenizer()
            return keras_hub.tokenizers.Tokenizer.from_preset(self.source)

    def image_converter(self) -> keras_hub.layers.ImageConverter:
        """Returns the preprocessing of pixels for the backbone.

        Raises:
            EncoderError: If it cannot be loaded.
        """
        import keras_hub

        with self._advice():
            if self._converted is not None:
                return self._converted.image_converter()
            converter = keras_hub.layers.ImageConverter.from_preset(self.source)
        if converter is None:
            raise self._error(f"{self.name} does not say how its pixels are scaled")
        return converter

    def max_tokens(self) -> int | None:
        """Returns the maximum number of tokens of the text backbone; None for no maximum.

        Raises:
            EncoderError: If the description of the backbone cannot be loaded.
        """
        # KerasHub provides it for a built backbone only, which takes seconds and gigabytes.
        with self._advice():
            if self._converted is not None:
                return self._converted.max_tokens
            loader = preset_loader(self.source)
            if hasattr(loader, "converter"):
                return loader.converter.convert_backbone_config(loader.config).get(_LENGTH)
            config = loader.config["config"]
            return config.get("text_encoder", {}).get("config", config).get(_LENGTH)

    @cached_property
    def _converted(self) -> TwoTowers | None:
        """A CLIP or SigLIP in the files of transformers, which KerasHub does not convert."""
        may_be = self.folder is not None or self.source.startswith("hf://")
        return TwoTowers.read(self.source) if may_be else None

    @cached_property
    def class_name(self) -> str:
        """The name of the class of its backbone.

        Raises:
            EncoderError: If the description of the backbone cannot be loaded.
        """
        with self._advice():
            if self._converted is not None:
                return CLIP if self._converted.model_type == "clip" else SIGLIP
            return str(preset_loader(self.source).check_backbone_class().__name__)

    @contextmanager
    def _advice(self, option: str = "preset") -> Iterator[None]:
        """Converts errors of loading into advice."""
        try:
            yield
        except Exception as error:  # every hub has different exceptions
            reason = str(error).strip().split("\n")[0]
            if host := re.search(r"host='([^']+)'.*Max retries exceeded", reason):
                reason = f"no connection to {host[1]}"
            if self.folder is None:
                text = (
                    f"the preset {self.name!r} cannot be fetched ({reason}). Where "
                    f"there is internet, {self._how_to_save()} writes it into a folder; name "
                    f"that folder {'as --model' if self.side == 'both' else 'here as the preset'}"
                )
            else:
                text = f"{self.folder}: {self._why(reason, option)}"
            raise self._error(text, option) from None

    def _how_to_save(self) -> str:
        if self.name.startswith("hf://"):
            return f"`hf download {self.name.removeprefix('hf://')} --local-dir FOLDER`"
        parts = ["models.Backbone", *_COMPONENTS[self.side]]
        calls = "; ".join(_CALL.format(part=part) for part in parts)
        return f"`{_SAVE.format(preset=self.name, calls=calls)}`"

    def _why(self, reason: str, option: str) -> str:
        """Returns the fault of a folder, by layer if its weights do not fit."""
        if option != "weights" or self.folder is None:
            return reason
        if not any(self.folder.glob("*.h5")) and not any(self.folder.glob("*.safetensors*")):
            return f"it holds no weights ({WEIGHTS} or model.safetensors); write weights: null"
        differing = self._differences()
        if not differing:
            return reason
        return (
            f"{WEIGHTS} does not fit {CONFIG}: {differing}. One call of `save_to_preset` writes "
            "both"
        )

    def _differences(self) -> str:
        """Returns the layers with weights in the folder that do not fit; empty if unknown."""
        if self.folder is None or not (self.folder / WEIGHTS).is_file():
            return ""
        return differences(self._backbone(load_weights=False), self.folder / WEIGHTS)


_LENGTH = "max_sequence_length"


def _number_positions(backbone: Any) -> None:
    """Numbers the positions of a backbone that has them from its weights only."""
    for variable in backbone.non_trainable_variables:
        if variable.name == "position_ids":
            count = variable.shape[-1]
            variable.assign(keras.ops.arange(count, dtype=variable.dtype)[None])
