"""The run of a published model, as it is: made without data, captions, or a step of training."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Any

from keras_xmr.encoders.pretrained.presets import CLIP, SIGLIP, Preset
from keras_xmr.experiments.build import PHOTOS, build_model, build_tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.beginning import begin_training
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.weight_files import finish_training
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import locked, replace_atomically, user_path

_LOGGER = logging.getLogger(__name__)

OUTPUT = Path("saved_models")
"""The folder of runs."""


def pretrained_run(model: str | Path, output: Path = OUTPUT) -> Path:
    """Returns the folder of the run of a published model, which is made if it is not there yet.

    The run has a copy of the weights, and all commands for runs take it; a named folder has to
    stay, for the description of the model. Nothing is trained: where there are photos with
    captions, three fifths of them test, and a fifth calibrates an index.

    Args:
        model: A CLIP or SigLIP by the name of a preset of KerasHub, an address (`hf://user/model`),
            or a folder: as `save_to_preset` writes it, or with the files of `transformers`.
        output: The folder of the run's folder.

    Raises:
        UserError: If the model does not exist or cannot be fetched, or the folder has another run.
    """
    name = str(model)
    is_folder = "://" not in name and user_path(name).is_dir()
    if is_folder:
        name = str(user_path(name).resolve())
    folder = output / _name(name)
    if (folder / "training.json").exists():
        encoder: Any = load_run(folder).model.image.encoder
        if name != getattr(encoder, "preset", None):
            raise UserError(
                f"{folder} holds a run of another model than {name}; rename either folder"
            )
        return folder
    config = _config(name, folder)
    with locked(folder):
        _LOGGER.info("== %s as it is, without training: %s", name, folder)
        tokenizer = build_tokenizer(config, PHOTOS)
        built = build_model(config, PHOTOS, tokenizer, pretrained=True).without_optimizer()
        run = RunFolder(config)
        begin_training(run, config, tokenizer.files())
        with replace_atomically(run.last_weights, ".weights.h5") as temporary:
            built.save_weights(temporary)
        finish_training(run, {"steps": 0}, config, [run.last_weights.name, *tokenizer.files()])
    return folder


def _name(model: str) -> str:
    """Returns the name of the run of a model."""
    if "://" in model:
        model = re.sub(r"/\d+$", "", model)  # the version of an address of Kaggle
    return re.sub(r"[^A-Za-z0-9._-]", "_", model.rpartition("/")[2]).lstrip("._-") or "model"


def _config(model: str, folder: Path) -> Config:
    image, words, towers, loss = _two_towers(model)
    return Config.model_validate(
        {
            "name": folder.name,
            "output": folder.parent,
            "data": {
                # Named when there are some: `evaluate --set data.source.root=FOLDER`.
                "source": {"name": "csv", "root": "photos", "val_share": 0.2, "test_share": 0.6},
                "records": folder / "records",
                "image": {"crop": "center", "flip": False, "cutout": 0, **image},
                "text": {"max_words": words, "drop_words": 0},
            },
            "model": towers,
            "objective": [loss],
            "train": {"optimizer": "adamw", "phases": []},
        }
    )


_Sections = tuple[dict[str, Any], int, dict[str, Any], dict[str, Any]]
"""Sections of a config: of pixels, the most words, of towers with their matcher, the loss."""

_PAIRS = {"name": "probabilistic_matching", "pseudo_positives": 0}
"""The binary cross entropy of all pairs, by which SigLIP is trained."""


def _two_towers(model: str) -> _Sections:
    preset = Preset(model, "both")
    if preset.class_name not in (CLIP, SIGLIP):
        raise UserError(
            f"{model} is a {preset.class_name}, which does not embed photos and texts in one "
            "space; take a CLIP or a SigLIP, such as clip_vit_base_patch32 or "
            "siglip2_base_patch16_224"
        )
    converter, backbone = preset.image_converter(), preset.backbone("preset")
    words = preset.max_tokens()
    preset.tokenizer()
    size = backbone.vision_encoder.image_shape[0]
    image = {
        "size": size,
        "resize": size,
        "fit": "center" if converter.crop_to_aspect_ratio else "stretch",
        "interpolation": converter.interpolation,
    }
    tower = {"pooling": {"name": "mean", "projection": False}, "head": "point"}
    towers: dict[str, Any] = {
        side: {"encoder": {"name": f"keras_hub_{side}", "preset": model, "output": "pooled"}}
        | tower
        for side in ("image", "text")
    }
    if preset.class_name == CLIP:
        towers["dimension"] = backbone.projection_dim
        # Its scores compare captions with one another, and are not log-odds of a match.
        towers["matcher"] = "cosine"
        temperature = math.exp(-float(backbone.clip_head.logit_scale))
        loss = {"name": "info_nce", "temperature": temperature}
    else:
        towers["dimension"] = backbone.vision_encoder.hidden_dim
        head = backbone.siglip_head
        scale, bias = math.exp(float(head.logit_scale)), float(head.logit_bias)
        towers["matcher"] = {"name": "cosine_logits", "scale": scale, "shift": bias}
        loss = _PAIRS
    return image, words or 64, towers, loss
