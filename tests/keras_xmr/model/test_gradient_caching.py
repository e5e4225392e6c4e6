"""Gradient caching: the gradient of the whole batch, embedded in chunks."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.experiments.training.train import _check_phases
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ArgumentError


def tower(width: int, name: str, layer: keras.layers.Layer) -> keras.Model:
    """A tower of `models`, behind a layer that does something else in training."""
    inputs = keras.Input((3, width), name=name)
    return keras.Model(inputs, models.tower(width, name)(layer(inputs)), name=f"{name}_tower")


def with_layers(gradient_caching: int | None, make=keras.layers.Dropout, *options) -> Retriever:
    """A tiny PCME whose towers have such a layer, in plain gradient descent."""
    keras.utils.set_random_seed(1)
    towers = tower(4, "image", make(*options)), tower(3, "caption", make(*options))
    losses, _ = models.pcme_losses()
    model = Retriever(*towers, models.probabilities(), losses, gradient_caching=gradient_caching)
    model.compile(optimizer=keras.optimizers.SGD(0.05))
    return model


def in_chunks(model: Retriever, x, size: int):
    """What the towers make of a batch in such chunks, with all that is needed for gradients."""
    towers = {"image": model.image_tower, "caption": model.text_tower}
    return {
        side: tf.nest.map_structure(
            lambda *parts: tf.concat(parts, 0),
            *[t(x[side][n : n + size], training=True) for n in range(0, len(x[side]), size)],
        )
        for side, t in towers.items()
    }


@pytest.mark.slow
def test_gradients_are_those_of_the_whole_batch_with_dropout_and_samples():
    model, (x, y) = with_layers(3, keras.layers.Dropout, 0.4), models.batch(7)
    states = [v for v in model.variables if "seed_generator" in v.path]
    begin = [state.numpy() for state in states]
    loss, log, cached = model._gradients(x, y)
    end = [state.numpy() for state in states]
    for state, value in zip(states, begin, strict=True):
        state.assign(value)
    with tf.GradientTape() as tape:
        plain, parts = model._objective(in_chunks(model, x, 3), x, y, training=True)
    expected = tape.gradient(plain, model.trainable_variables)
    assert len(begin) == 2
    assert (end[0] != begin[0]).any()
    for state, value in zip(states, end, strict=True):
        np.testing.assert_array_equal(state, value)  # drawn from as often as once
    np.testing.assert_allclose(loss, plain, rtol=1e-6)
    assert log.keys() == parts.keys()
    for found, gradient in zip(cached, expected, strict=True):
        assert np.abs(gradient).max() > 0
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_is_that_of_the_whole_batch_in_a_graph():
    weights = []
    for size in (None, 3):
        model = models.points(gradient_caching=size)
        model.compile(optimizer=keras.optimizers.SGD(0.05))
        model.train_on_batch(*models.batch(7))
        weights.append([weight.numpy() for weight in model.trainable_weights])
    for whole, chunks in zip(*weights, strict=True):
        np.testing.assert_allclose(chunks, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_batch_normalisation_is_refused_where_it_is_trained():
    with pytest.raises(ArgumentError, match="image tower is batch normalisation"):
        with_layers(3, keras.layers.BatchNormalization)


@pytest.mark.slow
def test_a_later_phase_is_refused_before_the_first_is_trained():
    model = models.pcme(gradient_caching=3)
    inputs = keras.Input((3, 5), name="image")
    features = keras.layers.BatchNormalization(name="encoder")(inputs)
    model.image_tower = keras.Model(
        inputs, model.image_tower.get_layer("head")(features, mask=None)
    )
    phases = [SimpleNamespace(freeze=("image.encoder",)), SimpleNamespace(freeze=())]

    def config(*phases):
        return SimpleNamespace(train=SimpleNamespace(gradient_caching=3, phases=phases))

    _check_phases(model, config(phases[0]))
    with pytest.raises(ArgumentError, match="'encoder' in the image tower"):
        _check_phases(model, config(*phases))
