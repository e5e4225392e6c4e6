"""Heads that begin as their pooling."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.heads import (
    AttentivePoint,
    DynamicSubEmbeddings,
    Gaussian,
    PIENet,
    SlotAttention,
)
from keras_xmr.heads.pooling import Mean, Projection
from keras_xmr.layers import ReZero

MASK = np.arange(4) < np.array([4, 2, 3])[:, None]
SLOTS = {"heads": 2, "head_dimension": 4, "iterations": 2}
HEADS = [
    (Gaussian, {"initial_log_variance": -3.0}),
    (Gaussian, {"initial_log_variance": -3.0, "local_attention": False}),
    (Gaussian, {"initial_log_variance": -3.0, "variance_pooling": "bi_gru"}),
    (AttentivePoint, {}),
    (PIENet, {"set_size": 3, "dropout": 0.1}),
    (DynamicSubEmbeddings, {"set_size": 3}),
    (SlotAttention, {"set_size": 3, **SLOTS}),
]


@pytest.fixture
def features(random):
    return random.normal(size=(3, 4, 5)).astype(np.float32)


def made(kind, options, pooling=Projection, policy=None):
    keras.utils.set_random_seed(4)
    head = kind(6, lambda: pooling(6, dtype=policy), rezero=True, dtype=policy, **options)
    head.build((None, None, 5))
    return head


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "policy"), [(Projection, None), (Mean, "mixed_float16")])
@pytest.mark.parametrize(("kind", "options"), HEADS)
def test_a_head_begins_as_its_pooling(features, kind, options, pooling, policy):
    head = made(kind, options, pooling, policy)
    if policy is not None:
        features = features.astype(np.float16)  # as the head sees them
    pooled = np.asarray(head.global_pooling(features, mask=MASK), np.float64)
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    found = head(features, mask=MASK)
    points = found["points"] if "points" in found else found["mean"][:, None]
    assert points.dtype == "float32"
    assert points.shape == (3, options.get("set_size", 1), 6)
    for point in np.moveaxis(np.asarray(points), 1, 0):
        np.testing.assert_allclose(point, expected, atol=1e-6 if policy is None else 1e-3)
    if "log_variance" in found:
        np.testing.assert_array_equal(found["log_variance"], np.full((3, 6), -3, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), HEADS)
def test_a_gradient_reaches_every_factor(features, random, kind, options):
    head = made(kind, options)
    factors = {
        weight.path: weight.value
        for layer in head._flatten_layers()
        if isinstance(layer, ReZero)
        for weight in layer.trainable_weights
    }
    with tf.GradientTape() as tape:
        found = head(features, mask=MASK)
        names = {"points", "mean", "log_variance"} & set(found)
        loss = sum(
            tf.reduce_sum(found[name] * random.normal(size=found[name].shape)) for name in names
        )
    for path, gradient in tape.gradient(loss, factors).items():
        assert gradient is not None, path
        assert abs(float(gradient)) > 1e-4, path
    assert len(factors) == (2 if kind is Gaussian and options.get("local_attention", True) else 1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [HEADS[0], HEADS[3], HEADS[6]])
def test_a_head_that_has_moved_is_more_than_its_pooling_and_is_saved(
    features, kind, options, tmp_path
):
    head = made(kind, options, Mean)
    head.name = "head"
    inputs, mask = keras.Input((None, 5)), keras.Input((None,), dtype="bool")
    model = keras.Model([inputs, mask], head(inputs, mask=mask))
    before = model([features, MASK])
    for layer in head._flatten_layers():
        if isinstance(layer, ReZero):
            layer.factor.assign(0.7)
    expected = model([features, MASK])
    moved = "points" if "points" in expected else "mean"
    assert np.abs(np.asarray(expected[moved]) - np.asarray(before[moved])).max() > 0.01
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    for name, value in again([features, MASK]).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert again.get_layer("head").rezero
    assert again.get_layer("head").get_config().keys() == head.get_config().keys()


@pytest.mark.parametrize(("kind", "options"), HEADS)
def test_without_it_there_is_no_factor(features, kind, options):
    head = kind(6, lambda: Mean(6), **options)
    head.build((None, None, 5))
    assert not any(isinstance(layer, ReZero) for layer in head._flatten_layers())
    assert not head.get_config()["rezero"]


def test_means_that_are_kept_have_no_factor():
    head = Gaussian(5, lambda: Mean(5), rezero=True, keep_mean=True)
    head.build((None, None, 5))
    assert [w.path.split("/")[-2:] for w in head.weights if w.name == "factor"] == [
        ["log_variance_factor", "factor"]
    ]
