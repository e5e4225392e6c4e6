"""Small models and configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.heads import Gaussian
from keras_xmr.heads.pooling import Mean
from keras_xmr.layers import L2Normalize
from keras_xmr.losses import (
    HypergraphContrastive,
    InfoNCE,
    KLDivergence,
    Loss,
    MahalanobisContrastive,
    ProbabilisticMatching,
    SoftContrastive,
    Uniformity,
)
from keras_xmr.matchers import ClosedFormSampled, Cosine, Matcher, MatchProbability
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever


def tower(width: int, name: str, dimension: int = 6) -> keras.Model:
    """A tower from features (B, 3, width) to a Gaussian embedding."""
    inputs = keras.Input((3, width), name=name)
    features = keras.layers.Dense(5, activation="tanh", name="encoder")(inputs)
    head = Gaussian(dimension, lambda: Mean(dimension), name="head", initial_log_variance=-2.0)
    return keras.Model(inputs, head(features), name=f"{name}_tower")


def gaussian_model(
    matcher: Matcher, losses: list[Loss], weights: list[float], **options: Any
) -> Retriever:
    """A tiny model of Gaussian embeddings."""
    keras.utils.set_random_seed(1)
    towers = tower(4, "image"), tower(3, "caption")
    return Retriever(*towers, matcher, Objective(losses, weights), **options)


def probabilities() -> MatchProbability:
    """The matcher of PCME, for so small models."""
    return MatchProbability(scale=5.0, shift=5.0, samples=3)


Losses = tuple[list[Loss], list[float]]
"""Losses and their weights."""


def pcme_losses() -> Losses:
    return [SoftContrastive(), KLDivergence(), Uniformity()], [1.0, 0.01, 0.5]


def pcme(**options: Any) -> Retriever:
    """A tiny PCME with all its losses."""
    return gaussian_model(probabilities(), *pcme_losses(), **options)


def points(**options: Any) -> Retriever:
    """A tiny model of points: a matrix a side."""
    keras.utils.set_random_seed(1)
    towers = []
    for width, name in ((4, "image"), (3, "caption")):
        inputs = keras.Input((3, width), name=name)
        features = keras.layers.Dense(6, use_bias=False, name="encoder")(inputs)
        mean = L2Normalize(dtype="float32")(keras.ops.mean(features, axis=1))
        towers.append(keras.Model(inputs, {"mean": mean}, name=f"{name}_tower"))
    return Retriever(*towers, Cosine(), Objective([InfoNCE()], [1.0]), **options)


def msrm_losses(residual: bool = False) -> Losses:
    # With the small variances of these towers, distances are large.
    losses = [
        MahalanobisContrastive(temperature=0.1),
        HypergraphContrastive(alpha=0.1, residual=residual),
    ]
    return losses, [0.8, 1.0]


def msrm(residual: bool = False, **options: Any) -> Retriever:
    """A tiny MSRM."""
    return gaussian_model(Cosine(), *msrm_losses(residual), **options)


def pcmepp_losses() -> Losses:
    return [ProbabilisticMatching(), KLDivergence(reduction="mean")], [1.0, 0.01]


def pcmepp(**options: Any) -> Retriever:
    """A tiny PCME++."""
    return gaussian_model(ClosedFormSampled(), *pcmepp_losses(), **options)


def gaussians(random: np.random.Generator, count: int, width: int = 6) -> dict[str, Any]:
    """Gaussian embeddings of so many items."""
    return {
        name: random.normal(size=(count, width)).astype(np.float32)
        for name in ("mean", "log_variance")
    }


def batch(size: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pairs for these models, of which two share an image, in two classes."""
    random = np.random.default_rng(seed)
    x = {
        "image": random.normal(size=(size, 3, 4)).astype(np.float32),
        "caption": random.normal(size=(size, 3, 3)).astype(np.float32),
    }
    ids = np.arange(size)
    ids[1] = ids[0]
    y = {"image_id": ids, "caption_id": np.arange(size), "labels": ids[:, None] % 2}
    return x, y


def several(size: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Images for these models, all but the first with two captions, in two classes."""
    x, _ = batch(2 * size - 1, seed)
    x["image"], images = x["image"][:size], np.arange(size)
    of = np.repeat(images, 2)[1:]
    y = {"image_id": images, "labels": images[:, None] % 2}
    return x, y | {f"caption_{name}": values[of] for name, values in y.items()}


def train_three_steps(model: Retriever, loss: str) -> None:
    """Trains on one batch, and checks that every tower moved and that the loss fell."""
    # Three steps are sooner done than traced.
    model.compile(optimizer=keras.optimizers.SGD(0.05), run_eagerly=True)
    x, y = batch(8)
    encoders = [
        tower.get_layer("encoder").kernel for tower in (model.image_tower, model.text_tower)
    ]
    before = [kernel.numpy() for kernel in encoders]
    values = []
    for _ in range(3):
        model.reset_metrics()
        values.append(float(model.train_on_batch(x, y, return_dict=True)[loss]))
    assert np.isfinite(values).all()
    assert values[-1] < values[0]
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    for kernel, start in zip(encoders, before, strict=True):
        assert np.abs(kernel.numpy() - start).max() > 0


POINTS = (
    "model.image.head=point",
    "model.text.head=point",
    "model.matcher=cosine",
    "objective=[triplet]",
    "evaluation.matchers=[]",
)
"""Makes a config one of points, which are traced sooner than Gaussians."""


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
            "model.text.pooling=mean",  # traced sooner than bi_gru
            "model.matcher.samples=2",
            "train.batch_size=8",
            "train.optimizer=adam",  # traced sooner than adamp
            "train.devices=1",
            "train.operation_threads=null",  # TensorFlow has begun in tests, in their processes not
            "train.phases.0.epochs=2",
            "train.checkpoint_steps=3",
            "train.log_steps=2",
            "train.validate_every=1",
            "evaluation.batch_size=8",
            "evaluation.matchers=[mean_only]",
            "evaluation.report_card=false",  # embeds again, and draws a lot
            *overrides,
        ],
    )
