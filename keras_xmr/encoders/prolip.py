"""The encoders of ProLIP, and its published weights.

They are a folder with `config.json`, the numbers of both towers, and `model.safetensors`, with
tensors in the names and layouts of PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from data_pipelines.text import Tokenizer
from keras_xmr.config.contracts import EncoderContract
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.subwords import SubwordTokenizer
from keras_xmr.encoders.pretrained.weights import take_all
from keras_xmr.layers.transformer import ProlipImageTower, ProlipTextTower, ProlipTower

_CONFIG, _WEIGHTS, _PIECES = "config.json", "model.safetensors", "spiece.model"


@dataclass(kw_only=True, eq=False)
class _ProlipEncoder(Encoder):
    """A tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    Its features are two positions, for the head `prolip`. A subclass implements `tower`.

    Args:
        folder: A folder with `config.json` and `model.safetensors` of a published ProLIP, and for
            the text tower with `spiece.model`, the tokenizer of SigLIP.
        published: Whether the published weights are loaded; or else it starts at random, and the
            folder needs no `model.safetensors`.
    """

    CONTRACT = EncoderContract(positions=2)

    folder: str = "data/raw/prolip"
    published: bool = True

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        """The tower of a folder, with random weights.

        Raises:
            EncoderError: If it does not fit the inputs.
        """
        raise NotImplementedError

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Features (B, 2, D), without a mask."""
        folder = self.read()
        tower = self.tower(folder, inputs, spec)
        features = tower(inputs)
        if self.published and spec.pretrained:
            folder.load(tower)
        return features, None

    def weight_files(self) -> list[Path]:
        """The files of the folder, whether they exist or not."""
        names = (_CONFIG, _WEIGHTS) if self.published else ()
        return [Path(self.folder).expanduser() / name for name in names]

    def read(self) -> ProlipFolder:
        """Opens the folder; errors name the key of the config."""
        return ProlipFolder(self.folder, f"model.{self.CONTRACT.side}.encoder.folder")


class ProlipImage(_ProlipEncoder):
    """The image tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes pixels (B, H, W, 3) to (B, 2, D): two positions, for the head `prolip`.
    """

    CONTRACT = EncoderContract(side="image", reads="pixels")

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        if inputs.shape[1] != folder.image_size:
            raise self.error(
                "folder",
                f"this ProLIP sees {folder.image_size} pixels, and data.image.size is "
                f"{inputs.shape[1]}",
            )
        return folder.image_tower(name="encoder")


class ProlipText(_ProlipEncoder):
    """The text tower of ProLIP, with its [CLS] and [UNC] tokens (Chun et al. 2025).

    It makes ids (B, L), padded with -1, to (B, 2, D): two positions, for the head `prolip`. Its
    tokenizer is that of SigLIP, which lowers letters and removes punctuation; underscores too,
    which the released code replaces by spaces.
    """

    CONTRACT = EncoderContract(side="text", reads="words")

    def tower(self, folder: ProlipFolder, inputs: Any, spec: InputSpec) -> ProlipTower:
        tower = folder.text_tower(name="encoder")
        if len(spec.vocabulary) > tower.vocabulary:
            raise self.error(
                "folder",
                f"the tokenizer has {len(spec.vocabulary):,} tokens, and this ProLIP knows "
                f"{tower.vocabulary:,}",
            )
        return tower

    def tokenizer(self, max_words: int) -> Tokenizer:
        """The tokenizer of SigLIP."""
        import keras_hub

        folder = self.read()
        tokenizer = keras_hub.tokenizers.SigLIPTokenizer(folder.pieces())
        return SubwordTokenizer(tokenizer, max_words, folder.length)

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer:
        """The tokenizer in the folder of a run."""
        return SubwordTokenizer.restore(run, max_words)


class ProlipFolder:
    """A folder of a published ProLIP.

    Args:
        folder: The folder.
        option: The option that names it, for messages.

    Attributes:
        image_size: Height and width of the pixels that its image tower sees.
        length: Number of tokens of a caption that its text tower reads.
        dimension: The width of its joint space.

    Raises:
        EncoderError: If it has no `config.json` of a ProLIP.
    """

    def __init__(self, folder: str, option: str) -> None:
        self._option = option
        self.folder = Path(folder).expanduser()
        try:
            config = json.loads((self.folder / _CONFIG).read_text("utf-8"))
            self._image, self._text = config["vision_cfg"], config["text_cfg"]
            self.image_size = int(self._image["image_size"])
            self.length = int(self._text["context_length"])
            self.dimension = int(config["embed_dim"])
            self._activation = "quick_gelu" if config.get("quick_gelu") else "gelu"
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._error(
                f"{self.folder / _CONFIG} does not describe a ProLIP ({error!r}). Download one, as "
                "`hf download SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B --local-dir FOLDER` does"
            ) from None

    def _error(self, text: str) -> EncoderError:
        return EncoderError(f"{self._option}: {text}")

    def scale_and_bias(self) -> tuple[float, float]:
        """Scale and bias of its cosines, before uncertainty is subtracted.

        Raises:
            EncoderError: If its weights cannot be read.
        """
        tensors = self._tensors("logit_")
        try:
            return float(np.exp(tensors["scale"])), float(tensors["bias"])
        except KeyError as error:
            raise self._error(f"{self.folder / _WEIGHTS} has no logit_{error.args[0]}") from None

    def image_tower(self, **options: Any) -> ProlipImageTower:
        """Its image tower, with random weights."""
        heads = self._image["width"] // self._image.get("head_width", 64)
        numbers = self._numbers(self._image) | {"patch": self._image["patch_size"]}
        return ProlipImageTower(heads=heads, **numbers, **options)

    def text_tower(self, **options: Any) -> ProlipTextTower:
        """Its text tower, with random weights."""
        numbers = self._numbers(self._text) | {"vocabulary": self._text["vocab_size"]}
        return ProlipTextTower(heads=self._text["heads"], length=self.length, **numbers, **options)

    def _numbers(self, tower: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "dimension": self.dimension,
            "activation": self._activation,
            "width": tower["width"],
            "blocks": tower["layers"],
            "hidden": int(tower["width"] * tower.get("mlp_ratio", 4.0)),
            "epsilon": (tower.get("norm_kwargs") or {}).get("eps", 1e-5),
        }

    def load(self, tower: ProlipTower) -> None:
        """Loads the published weights into a tower, which has been built.

        Raises:
            EncoderError: If the file is missing, or its tensors are not those of the tower.
        """
        is_image = isinstance(tower, ProlipImageTower)
        side, parts = ("visual.", dict(_IMAGE)) if is_image else ("text.", dict(_TEXT))
        for number in range(len(tower.blocks)):
            for name, part in _BLOCK.items():
                parts[f"transformer.resblocks.{number}.{name}"] = f"blocks.{number}.{part}"
        path = self.folder / _WEIGHTS
        tensors = self._tensors(side)
        try:
            take_all(tower, tensors, parts)
        except ValueError as error:
            raise self._error(f"{path} does not fit {self.folder / _CONFIG}: {error}") from None
        if tensors:
            raise self._error(
                f"{path} holds {side}{min(tensors)}, which this ProLIP does not have; the folder "
                f"should have both files of one model"
            )

    def _tensors(self, side: str) -> dict[str, np.ndarray]:
        """The tensors of one tower, by their names without that of the tower."""
        path = self.folder / _WEIGHTS
        try:
            with safe_open(path, framework="numpy") as file:
                names = [name for name in file.keys() if name.startswith(side)]  # noqa: SIM118
                # Those of attention are in one, with another mark before `weight` and `bias`.
                return {
                    name.removeprefix(side).replace("in_proj_", "in_proj."): file.get_tensor(name)
                    for name in names
                }
        except (OSError, SafetensorError, TypeError) as error:
            raise self._error(f"{path} cannot be read: {error}") from None

    def pieces(self) -> bytes:
        """The model of SentencePiece that its tokenizer is made of.

        Raises:
            EncoderError: If it is missing.
        """
        path = self.folder / _PIECES
        if not path.is_file():
            raise self._error(
                f"{path} is missing, which ProLIP shares with SigLIP; `hf download "
                f"google/siglip-base-patch16-224 {_PIECES} --local-dir {self.folder}` puts it there"
            )
        return path.read_bytes()


# Parts of the towers, by the names of their tensors.
_IMAGE = {
    "class_embedding": "class_token",
    "unc_embedding": "uncertainty_token",
    "positional_embedding": "positions",
    "conv1": "patches",
    "ln_pre": "first_norm",
    "ln_post": "final_norm",
    "proj": "projection",
    "uncertainty_proj": "log_variance",
}
_TEXT = {
    "cls_emb": "class_token",
    "unc_emb": "uncertainty_token",
    "positional_embedding": "positions",
    "token_embedding": "embedding",
    "ln_final": "final_norm",
    "text_projection": "projection",
    "text_uncertainty_projection": "log_variance",
}
_BLOCK = {
    "ln_1": "attention_norm",
    "attn.in_proj": "queries_keys_values",
    "attn.out_proj": "attention_linear",
    "ln_2": "hidden_norm",
    "mlp.c_fc": "hidden_linear",
    "mlp.c_proj": "output_linear",
}
