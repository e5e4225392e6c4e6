"""Freezing parts of a model, and giving them learning rates of their own."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from keras_xmr.config import PhaseOptions
from keras_xmr.retriever import Retriever
from keras_xmr.towers import parts_of


def model_parts(model: Retriever) -> Mapping[str, list[keras.Layer]]:
    """The parts that a config can name: `matcher`, `image`, `image.encoder`, and so on."""
    parts = {"matcher": [model.matcher]}
    for side, tower in (("image", model.image_tower), ("text", model.text_tower)):
        parts[side] = [tower]
        parts |= {f"{side}.{part}": layers for part, layers in parts_of(tower).items()}
    return parts


def freeze(model: Retriever, names: tuple[str, ...]) -> None:
    """Makes everything trainable but the named parts."""
    model.image_tower.trainable = model.text_tower.trainable = model.matcher.trainable = True
    parts = model_parts(model)
    for name in names:
        for layer in parts[name]:
            layer.trainable = False


def learning_rate_factors(model: Retriever, phase: PhaseOptions) -> dict[str, float]:
    """The factor of the learning rate of every variable that has another one than the phase.

    Where a part stands within another, the smaller one counts.
    """
    parts = model_parts(model)
    factors = {}
    for name in sorted(phase.learning_rates, key=lambda name: name.count(".")):
        for layer in parts[name]:
            for variable in layer.trainable_variables:
                factors[variable.path] = phase.learning_rates[name] / phase.learning_rate
    return factors
