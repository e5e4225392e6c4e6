"""Tiny models of every method, as the config puts them together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.registry import Choice, components

MODELS: dict[str, dict[str, Any]] = {
    "point": {"image": "point", "text": "attentive_point", "matcher": "cosine"},
    "mean_only": {"image": "point", "text": "point", "matcher": "mean_only"},
    "p2rm": {"image": "rectangle", "text": "rectangle", "matcher": "point_to_rectangle"},
    "gaussian": {"image": "gaussian", "text": "gaussian", "matcher": "match_probability"},
    "pvse": {
        "image": {"name": "pie_net", "set_size": 2},
        "text": {"name": "pie_net", "set_size": 3},
        "matcher": "max_cosine",
    },
    "dive": {
        "image": {"name": "slot_attention", "set_size": 2, "iterations": 2, "head_dimension": 3},
        "text": {
            "name": "slot_attention",
            "set_size": 2,
            "iterations": 1,
            "heads": 2,
            "positions": "sine",
        },
        "matcher": "smooth_chamfer",
    },
    "dvse": {
        "image": {"name": "dynamic_sub_embeddings", "set_size": 2},
        "text": "attentive_point",
        "matcher": "mean_cosine",
    },
}
"""The heads of the image tower and of the text tower, and the matcher."""

LOSSES: dict[str, dict[str, Any]] = {
    "soft_contrastive": {},
    "kl_divergence": {},
    "uniformity": {},
    "triplet_sum": {"name": "triplet", "mining": "sum"},
    "triplet": {"warmup_steps": 1},
    "smooth_ap": {"temperature": 0.1},
    "info_nce": {"learnable": True},
    "supervised_contrastive": {"learnable": True},
    "diversity": {},
    "set_uniformity": {},
    "mmd": {},
    "dynamic_orthogonality": {},
    "variance_aware_weighting": {},
    "probabilistic_matching": {},
    "mahalanobis_contrastive": {},
    "hypergraph_contrastive": {},
    "daa": {},
}
"""The losses, and the options that they are tried with; `captioning` and
`adaptive_offline_quintuplet` need other batches."""


def config(model: str, losses: Sequence[str]) -> Config:
    """The config of a model and losses.

    Raises:
        ConfigError: If they make no sense together.
    """
    parts = MODELS[model]
    objective = [{"name": name, **LOSSES[name]} for name in losses]
    values = {
        "model.image.head": parts["image"],
        "model.text.head": parts["text"],
        "model.matcher": parts["matcher"],
        "evaluation.matchers": [],
        "objective": objective,
    }
    overrides = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    return load_config(find_config("scenes_pcme"), overrides)


def tower(choice: Choice, width: int, name: str) -> keras.Model:
    """A tower from features (B, 3, width) to an embedding of six numbers."""
    inputs = keras.Input((3, width), name=name)
    features = keras.layers.Dense(5, activation="tanh", name="encoder")(inputs)
    pooling = components("pooling")["mean"]
    head = components("head")[choice.name](6, lambda: pooling(6), name="head", **choice.options())
    return keras.Model(inputs, head(features), name=f"{name}_tower")


def towers(config: Config) -> tuple[keras.Model, keras.Model]:
    """The tiny towers of a config."""
    keras.utils.set_random_seed(1)
    return tower(config.model.image.head, 4, "image"), tower(config.model.text.head, 3, "caption")


def build(
    config: Config, own: tuple[keras.Model, keras.Model] | None = None, **options: Any
) -> Retriever:
    """The tiny model of a config, for the batches of `models.batch`; its towers may be given."""
    matcher = config.model.matcher
    own = own or towers(config)
    losses = [components("loss")[c.name](**c.options()) for c in config.objective]
    return Retriever(
        *own,
        components("matcher")[matcher.name](**matcher.options()),
        Objective(losses, [choice.weight for choice in config.objective]),
        **options,
    )
