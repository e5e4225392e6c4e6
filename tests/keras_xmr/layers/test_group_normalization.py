"""Group normalisation against that of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.layers import GroupNormalization


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 5, 4, 16), {"groups": 8}),
        ((2, 4, 4, 12), {"groups": 3, "epsilon": 1e-5}),
        ((2, 3, 3, 8), {"groups": 8, "center": False}),
        ((2, 3, 3, 8), {"groups": 1, "scale": False}),
    ],
    ids=str,
)
def test_outputs_and_gradients_are_those_of_keras(shape, options):
    rng = np.random.default_rng(0)
    inputs = tf.constant(rng.normal(3, 2, shape), tf.float32)
    upstream = tf.constant(rng.normal(size=shape), tf.float32)
    ours, theirs = GroupNormalization(**options), keras.layers.GroupNormalization(**options)
    weights = None
    found = []
    for layer in (theirs, ours):
        layer.build(shape)
        if weights is None:
            weights = [rng.normal(1, 1, weight.shape) for weight in layer.weights]
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
        sources = [inputs, *(weight.value for weight in layer.trainable_weights)]
        found.append([outputs, *tape.gradient(outputs, sources, upstream)])
    for expected, actual in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_half_precision_has_moments_of_single_precision():
    inputs = np.random.default_rng(0).normal(300, 100, (2, 8, 8, 16)).astype(np.float16)
    half = GroupNormalization(8, dtype="mixed_float16")(inputs)
    whole = keras.layers.GroupNormalization(8)(inputs.astype(np.float32))
    assert half.dtype == tf.float16
    np.testing.assert_allclose(half, whole, atol=5e-3)
