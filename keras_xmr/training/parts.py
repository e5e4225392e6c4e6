"""Freezing and learning rates of parts of a model."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from keras_xmr.config.schema import PhaseOptions
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import parts_of


def model_parts(model: Retriever) -> Mapping[str, list[keras.Layer]]:
    """The parts that a config can name: `matcher`, `image`, `image.encoder`, and so on."""
    parts = {"matcher": [model.matcher]}
    for side, tower in (("image", model.image_tower), ("text", model.text_tower)):
        parts[side] = [tower]
        parts |= {f"{side}.{part}": layers for part, layers in parts_of(tower).items()}
    return parts


def freeze(model: Retriever, names: tuple[str, ...]) -> None:
    """Makes everything trainable but the named parts."""
    for part in (model.image_tower, model.text_tower, model.matcher):
        # Setting True where it is True already does not reach the layers inside.
        part.trainable = False
        part.trainable = True
    parts = model_parts(model)
    for name in names:
        for layer in parts[name]:
            layer.trainable = False


def learning_rate_factors(
    model: Retriever, phase: PhaseOptions
) -> list[tuple[keras.Variable, float]]:
    """Variables with a learning rate other than that of the phase, and its factor.

    Where a part is within another, the inner one comes later, and takes precedence.
    """
    parts = model_parts(model)
    depth = {"image": 0, "text": 0, "image.head": 1, "text.head": 1}
    depth |= {"image.log_variance": 3, "text.log_variance": 3}
    return [
        (variable, phase.learning_rates[name] / phase.learning_rate)
        for name in sorted(phase.learning_rates, key=lambda name: depth.get(name, 2))
        for layer in parts[name]
        for variable in layer.trainable_variables
    ]
