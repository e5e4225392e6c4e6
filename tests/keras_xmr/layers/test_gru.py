"""The GRU that leaves padding out, against that of Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.layers import PackedGRU

LENGTHS = np.array([3, 9, 0, 1, 9, 6])
MASKS = {
    "none": None,
    "padded": np.arange(9) < LENGTHS[:, None],
    "holes": np.random.default_rng(1).random((6, 9)) < 0.5,
    "nothing": np.zeros((6, 9), bool),
}


def pair(**options):
    """A GRU of Keras, and ours with the same weights."""
    random = np.random.default_rng(0)
    layers = keras.layers.GRU(4, **options), PackedGRU(4, **options)
    for layer in layers:
        layer.build((None, None, 5))
    weights = [random.normal(0, 0.5, variable.shape) for variable in layers[0].weights]
    for layer in layers:
        layer.set_weights(weights)
    return layers


def outputs_and_gradients(layer, mask):
    """What comes out, and the gradients of inputs, initial state and weights."""
    inputs, state = tf.random.stateless_normal([6, 9, 5], [0, 1]), tf.ones([6, 4])
    factor = tf.random.stateless_normal([9, 4], [0, 2])
    with tf.GradientTape() as tape:
        tape.watch([inputs, state])
        # With an initial state, Keras has outputs of 0 where nothing has been read yet.
        outputs = layer(inputs, initial_state=state if mask is None else None, mask=mask)
        loss = tf.reduce_sum(outputs * factor if layer.return_sequences else outputs * factor[0])
    weights = [variable.value for variable in layer.trainable_variables]
    of = [inputs, *weights] if mask is not None else [inputs, state, *weights]
    gradients = tape.gradient(loss, of)
    return [outputs, *map(tf.convert_to_tensor, gradients)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "backwards", "sequences"),
    [
        *(("none", False, True), ("none", True, False)),
        *(("padded", False, False), ("padded", True, True)),
        *(("holes", False, True), ("holes", True, False)),
        *(("nothing", False, False), ("nothing", True, True)),
    ],
)
def test_outputs_and_gradients_are_those_of_keras(mask, backwards, sequences):
    keras_gru, gru = pair(go_backwards=backwards, return_sequences=sequences)
    found, expected = (outputs_and_gradients(layer, MASKS[mask]) for layer in (gru, keras_gru))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_padding_is_not_computed(monkeypatch):
    """Keras computes each of the 9 positions of 6 sequences; only 28 hold a word."""
    _, gru = pair()
    rows = []
    multiply = tf.matmul
    monkeypatch.setattr(
        tf, "matmul", lambda a, *b, **k: rows.append(len(a)) or multiply(a, *b, **k)
    )
    gru(np.zeros((6, 9, 5), np.float32), mask=MASKS["padded"])
    assert rows[0] == sum(rows[1:]) == LENGTHS.sum()


@pytest.mark.slow
def test_compiled_with_xla_it_is_that_of_keras():
    _, gru = pair()
    inputs = tf.random.stateless_normal([6, 9, 5], [0, 1])
    compiled = tf.function(lambda x: gru(x, mask=MASKS["padded"]), jit_compile=True)
    np.testing.assert_allclose(compiled(inputs), gru(inputs, mask=MASKS["padded"]), atol=1e-5)
