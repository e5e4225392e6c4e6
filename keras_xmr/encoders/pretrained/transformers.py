"""CLIP and SigLIP in the files of `transformers`, as the backbones that KerasHub has of them.

KerasHub converts files of other models itself. Tensors have the names of `CLIPModel` and
`SiglipModel`; SigLIP 2 of fixed resolutions is a `SiglipModel` with the tokenizer of Gemma.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import safetensors.numpy

from keras_xmr.encoders.pretrained.weights import take_all
from keras_xmr.layers.keras_compat import preset_file

if TYPE_CHECKING:
    import keras_hub

WEIGHTS = "model.safetensors"

_LARGE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
_SIGLIP = {**_LARGE, "num_attention_heads": 12, "hidden_act": "gelu_pytorch_tanh"}
_SIGLIP["layer_norm_eps"] = 1e-6
# Files omit the defaults of the classes of transformers.
_DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "clip": {
        "text": {
            **_LARGE,
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_attention_heads": 8,
            "hidden_act": "quick_gelu",
            "vocab_size": 49408,
            "max_position_embeddings": 77,
        },
        "vision": {
            **_LARGE,
            "num_attention_heads": 12,
            "hidden_act": "quick_gelu",
            "image_size": 224,
            "patch_size": 32,
        },
    },
    "siglip": {
        "text": {**_SIGLIP, "vocab_size": 32000, "max_position_embeddings": 64},
        "vision": {**_SIGLIP, "image_size": 224, "patch_size": 16},
    },
}

# Parts of the backbones of KerasHub, by the names of their tensors.
_EMBEDDINGS = {
    "vision_model.embeddings.patch_embedding": "vision_encoder.embedding.patch_embedding",
    "vision_model.embeddings.position_embedding": "vision_encoder.embedding.position_embedding",
    "text_model.embeddings.token_embedding": "text_encoder.embedding.token_embedding",
    "text_model.embeddings.position_embedding": "text_encoder.embedding.position_embedding",
}
_PLACES = {
    "clip": _EMBEDDINGS
    | {
        "vision_model.embeddings.class_embedding": "vision_encoder.embedding.class_embedding",
        "vision_model.pre_layrnorm": "vision_encoder.pre_layer_norm",
        "vision_model.post_layernorm": "vision_encoder.layer_norm",
        "text_model.final_layer_norm": "text_encoder.layer_norm",
        "visual_projection": "vision_projection",
        "text_projection": "text_projection",
        "logit_scale": "clip_head.logit_scale",
    },
    "siglip": _EMBEDDINGS
    | {
        "vision_model.post_layernorm": "vision_encoder.post_layer_norm",
        "vision_model.head.probe": "vision_encoder.head.probe",
        "vision_model.head.attention": "vision_encoder.head.attention",
        "vision_model.head.layernorm": "vision_encoder.head.layer_norm",
        "vision_model.head.mlp.fc1": "vision_encoder.head.mlp.fc1",
        "vision_model.head.mlp.fc2": "vision_encoder.head.mlp.fc2",
        "text_model.final_layer_norm": "text_encoder.post_layer_norm",
        "text_model.head": "text_encoder.head",
        "logit_scale": "siglip_head.logit_scale",
        "logit_bias": "siglip_head.logit_bias",
    },
}
_BLOCK = {
    "clip": {
        "layer_norm1": "layer_norm_1",
        "layer_norm2": "layer_norm_2",
        "mlp.fc1": "dense_1",
        "mlp.fc2": "dense_2",
        "self_attn": "attention",
    },
    "siglip": {
        name: name for name in ("layer_norm1", "layer_norm2", "mlp.fc1", "mlp.fc2", "self_attn")
    },
}
_RESAMPLE = {2: "bilinear", 3: "bicubic"}


class TwoTowers:
    """A CLIP or a SigLIP in the files of `transformers`.

    Args:
        source: The folder, or the address (`hf://user/model`).
        config: The `config.json`.

    Attributes:
        max_tokens: How many tokens of a caption its text tower reads.
    """

    def __init__(self, source: str, config: Mapping[str, Any]) -> None:
        self.source = source
        self.model_type: str = config["model_type"]
        self._config = config
        self._text, self._image = (
            defaults | (config.get(f"{side}_config") or {})
            for side, defaults in _DEFAULTS[self.model_type].items()
        )
        self.max_tokens: int = self._text["max_position_embeddings"]

    @classmethod
    def read(cls, source: str) -> TwoTowers | None:
        """Reads the towers at a source; None if it is another model.

        Raises:
            ValueError: If it is a model of the same family which KerasHub does not have.
        """
        config = json.loads(preset_file(source, "config.json").read_text("utf-8"))
        model_type = config.get("model_type")
        if model_type == "siglip2":
            raise ValueError(
                "this SigLIP 2 sees photos of any shape (NaFlex), which KerasHub's does not; take "
                "one of a fixed size, such as google/siglip2-base-patch16-224"
            )
        return cls(source, config) if model_type in _DEFAULTS else None

    def backbone(self, load_weights: bool, dtype: str) -> keras_hub.models.Backbone:
        """Returns the backbone, with the weights of the files or with random ones."""
        import keras_hub

        models, side = keras_hub.models, self._image["image_size"]
        image = _tower(self._image) | {
            "patch_size": self._image["patch_size"],
            "image_shape": (side, side, 3),
        }
        text = _tower(self._text) | {
            "vocabulary_size": self._text["vocab_size"],
            "embedding_dim": self._text["hidden_size"],
            "max_sequence_length": self.max_tokens,
        }
        if self.model_type == "clip":
            backbone = models.CLIPBackbone(
                models.CLIPVisionEncoder(**image, dtype=dtype),
                models.CLIPTextEncoder(**text, dtype=dtype),
                projection_dim=self._config.get("projection_dim", 512),
                dtype=dtype,
            )
        else:
            image["layer_norm_epsilon"] = self._image["layer_norm_eps"]
            text["layer_norm_epsilon"] = self._text["layer_norm_eps"]
            text["projection_dim"] = self._text.get("projection_size") or text["hidden_dim"]
            backbone = models.SigLIPBackbone(
                models.SigLIPVisionEncoder(**image, dtype=dtype),
                models.SigLIPTextEncoder(**text, dtype=dtype),
                dtype=dtype,
            )
        if load_weights:
            self._load(backbone)
        return backbone

    def tokenizer(self) -> keras_hub.tokenizers.Tokenizer:
        """Returns the tokenizer.

        Raises:
            FileNotFoundError: If its file is not there.
        """
        import keras_hub

        if self.model_type == "clip":
            model = json.loads(preset_file(self.source, "tokenizer.json").read_text("utf-8"))
            vocabulary, merges = model["model"]["vocab"], model["model"]["merges"]
            pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
            return keras_hub.tokenizers.CLIPTokenizer(vocabulary, pairs, pad_with_end_token=True)
        for name, role in (
            ("spiece.model", "SigLIPTokenizer"),
            ("tokenizer.model", "GemmaTokenizer"),
        ):
            with suppress(FileNotFoundError):
                pieces = preset_file(self.source, name).read_bytes()
                return getattr(keras_hub.tokenizers, role)(pieces)
        raise FileNotFoundError(
            "it has no model of SentencePiece: spiece.model of SigLIP, or tokenizer.model of "
            "SigLIP 2"
        )

    def image_converter(self) -> keras_hub.layers.ImageConverter:
        """Returns how photos are scaled.

        Raises:
            ValueError: If they are scaled in a way that KerasHub does not have.
        """
        import keras_hub

        settings = json.loads(
            preset_file(self.source, "preprocessor_config.json").read_text("utf-8")
        )
        sizes = {_side(settings[key]) for key in ("size", "crop_size") if key in settings}
        if len(sizes) > 1 or settings.get("resample", 3) not in _RESAMPLE:
            raise ValueError("preprocessor_config.json scales photos in a way that is not known")
        side = sizes.pop()
        class_name = "CLIPImageConverter" if self.model_type == "clip" else "SigLIPImageConverter"
        mean, deviation = settings["image_mean"], settings["image_std"]
        return getattr(keras_hub.layers, class_name)(
            image_size=(side, side),
            scale=[settings.get("rescale_factor", 1 / 255) / d for d in deviation],
            offset=[-m / d for m, d in zip(mean, deviation, strict=True)],
            crop_to_aspect_ratio=settings.get("do_center_crop", self.model_type == "clip"),
            interpolation=_RESAMPLE[settings.get("resample", 3)],
            antialias=True,
        )

    def _load(self, backbone: Any) -> None:
        tensors = safetensors.numpy.load_file(preset_file(self.source, WEIGHTS))
        places = dict(_PLACES[self.model_type])
        for side, tower in (("vision", backbone.vision_encoder), ("text", backbone.text_encoder)):
            for number in range(tower.num_layers):
                for name, place in _BLOCK[self.model_type].items():
                    block = f"{side}_encoder.encoder_layers.{number}.{place}"
                    places[f"{side}_model.encoder.layers.{number}.{name}"] = block
        take_all(backbone, tensors, places)
        # Files of old versions have the numbers of positions, too.
        if spare := [name for name in tensors if not name.endswith("position_ids")]:
            raise ValueError(f"{WEIGHTS} holds {min(spare)}, which config.json does not mention")


def _tower(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of towers of both sides."""
    activation = options["hidden_act"]
    activation = {"gelu_pytorch_tanh": "gelu_approximate"}.get(activation, activation)
    return {
        "hidden_dim": options["hidden_size"],
        "num_layers": options["num_hidden_layers"],
        "num_heads": options["num_attention_heads"],
        "intermediate_dim": options["intermediate_size"],
        "intermediate_activation": activation,
    }


def _side(size: Any) -> int:
    """Returns the height and width of the pixels: a number in old files, or a dictionary."""
    return int(size.get("height") or size["shortest_edge"]) if isinstance(size, dict) else int(size)
