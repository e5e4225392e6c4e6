"""The second loss of a method moves the model where a config has it."""

from __future__ import annotations

import methods
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.config.loader import find_config, load_config

pytestmark = pytest.mark.slow

LEAST = 0.05
"""The part of the gradient norm of the main loss that the other one has at least."""

# Those on other data have the losses, and the weights, of one of these.
CONFIGS = ("scenes_dvse", "cub_dvse", "scenes_msrm")


def batch(random):
    """Pairs whose features have something in common, and a relevance of each pair."""
    latent = random.normal(size=(48, 1, 4))
    image = latent + random.normal(size=(48, 3, 4))
    caption = latent[..., :3] + random.normal(size=(48, 3, 3))
    relevance = np.abs(random.normal(scale=0.02, size=(48, 48))) + 0.3 * np.eye(48)
    return (
        {"image": image.astype(np.float32), "caption": caption.astype(np.float32)},
        {"positives": np.eye(48, dtype=bool), "relevance": relevance.astype(np.float32)},
    )


def gradient_norms(name, random) -> list[tuple[str, float]]:
    """The norm of the gradient of each loss, with its weight, at the beginning of a training."""
    config = load_config(find_config(name))
    model = methods.build(config, min(config.model.dimension, 256))
    x, relations = batch(random)
    norms = []
    objective = model.objective
    for choice, loss, weight in zip(
        config.objective, objective.losses_, objective.weights_, strict=True
    ):
        with tf.GradientTape() as tape:
            embedded = model(x, training=True)
            image = model.matcher.prepare(embedded["image"], "image", (0, 1))
            caption = model.matcher.prepare(embedded["caption"], "caption", (0, 2))
            scores = model.matcher(image, caption)
            value = weight * sum(loss.parts(scores, image, caption, relations).values())
        variables = [*model.image_tower.trainable_variables, *model.text_tower.trainable_variables]
        gradients = [g for g in tape.gradient(value, variables) if g is not None]
        norms.append((choice.name, float(tf.linalg.global_norm(gradients))))
    return norms


@pytest.mark.parametrize("name", CONFIGS)
def test_every_loss_of_a_config_moves_the_model(random, name):
    (_, main), (_, other) = gradient_norms(name, random)
    assert other > LEAST * main
