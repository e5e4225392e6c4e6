"""Small models and configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_xmr.config import Config
from keras_xmr.config_file import find_config, load_config
from keras_xmr.heads import Gaussian
from keras_xmr.losses import KLDivergence, SoftContrastive, Uniformity
from keras_xmr.matchers import MatchProbability
from keras_xmr.objective import Objective
from keras_xmr.pooling import Mean
from keras_xmr.retriever import Retriever


def tower(width: int, name: str, dimension: int = 6) -> keras.Model:
    """A tower from features (B, 3, width) to a Gaussian embedding."""
    inputs = keras.Input((3, width), name=name)
    features = keras.layers.Dense(5, activation="tanh", name="encoder")(inputs)
    head = Gaussian(dimension, lambda: Mean(dimension), name="head", initial_log_variance=-2.0)
    return keras.Model(inputs, head(features), name=f"{name}_tower")


def pcme(**options: Any) -> Retriever:
    """A tiny PCME with all its losses."""
    keras.utils.set_random_seed(1)
    return Retriever(
        tower(4, "image"),
        tower(3, "caption"),
        MatchProbability(scale=5.0, shift=5.0, samples=3),
        Objective([SoftContrastive(), KLDivergence(), Uniformity()], [1.0, 0.01, 0.5]),
        **options,
    )


def batch(size: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pairs for `pcme`, of which two share an image, in two classes."""
    random = np.random.default_rng(seed)
    x = {
        "image": random.normal(size=(size, 3, 4)).astype(np.float32),
        "caption": random.normal(size=(size, 3, 3)).astype(np.float32),
    }
    ids = np.arange(size)
    ids[1] = ids[0]
    return x, {"image_id": ids, "caption_id": np.arange(size), "labels": ids[:, None] % 2}


def tiny_config(folder: Path, *overrides: str) -> Config:
    """The demo, small enough for a test, with everything it makes under `folder`."""
    return load_config(
        find_config("scenes_pcme"),
        [
            f"output={folder / 'saved_models'}",
            f"data.records={folder / 'records'}",
            "data.source={name: scenes, train: 40, val: 12, test: 12, captions_per_image: 2}",
            "data.image.size=32",
            "data.image.resize=32",
            "data.images_per_shard=16",
            "model.dimension=8",
            "model.image.encoder={name: small_cnn, channels: [8, 8]}",
            "model.text.encoder.dimension=6",
            "model.matcher.samples=2",
            "train.batch_size=8",
            "train.devices=1",
            "train.phases.0.epochs=2",
            "train.checkpoint_steps=3",
            "train.log_steps=2",
            "train.validate_every=1",
            "evaluation.batch_size=8",
            "evaluation.matchers=[mean_only]",
            *overrides,
        ],
    )
