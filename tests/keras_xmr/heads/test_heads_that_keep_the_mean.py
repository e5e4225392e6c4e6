"""Heads of uncertainty after the fact: the mean is that of the pooling, and no loss moves it."""

from __future__ import annotations

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.config.loader import ConfigError, find_config, load_config
from keras_xmr.heads import GeneralizedGaussian, Laplace, Point, Spherical
from keras_xmr.heads.pooling import Projection
from keras_xmr.losses import GeneralizedGaussianLikelihood, SphericalLikelihood
from keras_xmr.matchers import Cosine
from keras_xmr.model.retriever import Retriever

HEADS = {
    GeneralizedGaussian: {"hidden": 8, "dropout": 0.0},
    Laplace: {},
    Spherical: {"hidden": 8, "hidden_layers": 1},
    Point: {},
}
KEEPERS = (GeneralizedGaussian, Laplace, Spherical)
LOSSES = {
    "probvlm": (GeneralizedGaussian, GeneralizedGaussian, GeneralizedGaussianLikelihood),
    "asymvlm": (Point, Spherical, SphericalLikelihood),
}


def head(kind, name="head"):
    return kind(5, lambda: Projection(5), name=name, **HEADS[kind])


def tower(kind, width, name):
    inputs = keras.Input((3, width), name=name)
    return keras.Model(inputs, head(kind)(inputs), name=f"{name}_tower")


@pytest.mark.parametrize("kind", KEEPERS)
def test_the_mean_is_that_of_the_pooling_and_has_no_gradient(random, kind):
    features = tf.Variable(random.normal(size=(4, 3, 6)).astype(np.float32))
    made = head(kind)
    with tf.GradientTape() as tape:
        found = made(features)
        value = tf.reduce_sum(found["mean"] * random.normal(size=(4, 5)))
        value += tf.reduce_sum(found["log_variance"])
    pooled = made.pooling(features).numpy()
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(found["mean"], expected, atol=1e-6)
    kernel = made.pooling.kernel.value
    assert tape.gradient(value, kernel) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEEPERS)
def test_it_is_saved_and_loaded(random, kind, tmp_path):
    model, features = tower(kind, 6, "image"), random.normal(size=(4, 3, 6)).astype(np.float32)
    for weight in model.weights:
        if "factor" in weight.path:
            weight.assign(0.5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    for name, value in model(features).items():
        np.testing.assert_array_equal(again(features)[name], value, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_training_moves_the_variance_alone(name):
    image, caption, loss = LOSSES[name]
    keras.utils.set_random_seed(2)
    towers = tower(image, 4, "image"), tower(caption, 3, "caption")
    towers[0].trainable = image is not Point
    model = Retriever(*towers, Cosine(), [loss()])
    model.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
    x, y = models.batch(8)
    before, values = model(x), []
    for _ in range(3):
        model.train_on_batch(x, y)
        values.append(float(model.last_values.numpy()[0]))
    after = model(x)
    for side in ("image", "caption"):
        np.testing.assert_array_equal(after[side]["mean"], before[side]["mean"])
    sigmas = [found["caption"]["log_variance"].numpy().mean(axis=1) for found in (before, after)]
    assert np.ptp(sigmas[0]) < 1e-6
    assert np.ptp(sigmas[1]) > 1e-4
    assert values[-1] < values[0]


def test_a_posterior_is_computed_at_the_start_and_nothing_is_trained_without_phases(tmp_path):
    overrides = [f"output={tmp_path}", "data.source.root=photos"]
    config = load_config(find_config("csv_pretrained_laplace"), overrides)
    assert config.train.phases == ()
    with pytest.raises(ConfigError, match=r"model\.image\.head\.name.*write train\.start: cca"):
        load_config(find_config("csv_pretrained_laplace"), [*overrides, "train.start=random"])
