"""The published weights of ProLIP: a folder with `config.json` and `model.safetensors`.

`config.json` has the numbers of both towers. The tensors have the names and layouts of PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from keras_xmr.encoders.pretrained.weights import take
from keras_xmr.layers.prolip import ProlipImageTower, ProlipTextTower, ProlipTower

CONFIG, WEIGHTS, PIECES = "config.json", "model.safetensors", "spiece.model"


class ProlipError(ValueError):
    """The folder of a published ProLIP cannot be used; the message names the file."""


class ProlipFolder:
    """A folder of a published ProLIP.

    Args:
        folder: The folder.

    Raises:
        ProlipError: If it has no `config.json` of a ProLIP.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).expanduser()
        try:
            config = json.loads((self.folder / CONFIG).read_text("utf-8"))
            self._image, self._text = config["vision_cfg"], config["text_cfg"]
            self._shared = {
                "dimension": config["embed_dim"],
                "activation": "quick_gelu" if config.get("quick_gelu") else "gelu",
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProlipError(
                f"{self.folder / CONFIG} does not describe a ProLIP ({error!r}). Download one, as "
                "`hf download SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B --local-dir FOLDER` does"
            ) from None

    @property
    def image_size(self) -> int:
        """Height and width of the pixels that its image tower sees."""
        return int(self._image["image_size"])

    @property
    def length(self) -> int:
        """Number of tokens of a caption that its text tower reads."""
        return int(self._text["context_length"])

    @property
    def dimension(self) -> int:
        """The width of its joint space."""
        return int(self._shared["dimension"])

    def scale_and_bias(self) -> tuple[float, float]:
        """Scale and bias of its cosines, before uncertainty is subtracted.

        Raises:
            ProlipError: If its weights cannot be read.
        """
        tensors = _read(self.folder / WEIGHTS, "logit_")
        try:
            return float(np.exp(tensors["scale"])), float(tensors["bias"])
        except KeyError as error:
            raise ProlipError(f"{self.folder / WEIGHTS} has no logit_{error.args[0]}") from None

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
        return self._shared | {
            "width": tower["width"],
            "blocks": tower["layers"],
            "hidden": int(tower["width"] * tower.get("mlp_ratio", 4.0)),
            "epsilon": (tower.get("norm_kwargs") or {}).get("eps", 1e-5),
        }

    def load(self, tower: ProlipTower) -> None:
        """Loads the published weights into a tower, which has been built.

        Raises:
            ProlipError: If the file is missing, or its tensors are not those of the tower.
        """
        is_image = isinstance(tower, ProlipImageTower)
        side, names = ("visual.", _IMAGE) if is_image else ("text.", _TEXT)
        path = self.folder / WEIGHTS
        tensors = _read(path, side)
        try:
            for name, part in names.items():
                take(getattr(tower, part), tensors, name)
            for number, block in enumerate(tower.blocks):
                prefix = f"transformer.resblocks.{number}"
                for name, part in _BLOCK.items():
                    take(getattr(block, part), tensors, f"{prefix}.{name}")
                take(block.queries_keys_values, tensors, f"{prefix}.attn.in_proj", "_")
        except (KeyError, ValueError) as error:
            raise ProlipError(f"{path} does not fit {self.folder / CONFIG}: {error}") from None
        if tensors:
            raise ProlipError(
                f"{path} holds {side}{min(tensors)}, which this ProLIP does not have; the folder "
                f"should have both files of one model"
            )

    def pieces(self) -> bytes:
        """The model of SentencePiece that its tokenizer is made of.

        Raises:
            ProlipError: If it is missing.
        """
        path = self.folder / PIECES
        if not path.is_file():
            raise ProlipError(
                f"{path} is missing, which ProLIP shares with SigLIP; `hf download "
                f"google/siglip-base-patch16-224 {PIECES} --local-dir {self.folder}` puts it there"
            )
        return path.read_bytes()


def weight_files(folder: str) -> list[Path]:
    """The files of a published ProLIP in a folder, whether they exist or not."""
    return [Path(folder).expanduser() / name for name in (CONFIG, WEIGHTS)]


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
    "attn.out_proj": "attention_linear",
    "ln_2": "hidden_norm",
    "mlp.c_fc": "hidden_linear",
    "mlp.c_proj": "output_linear",
}


def _read(path: Path, side: str) -> dict[str, np.ndarray]:
    """The tensors of one tower, by their names without that of the tower."""
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if name.startswith(side)]  # noqa: SIM118
            return {name.removeprefix(side): file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, TypeError) as error:
        raise ProlipError(f"{path} cannot be read: {error}") from None
