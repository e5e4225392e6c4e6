"""A loss over two devices of JAX; for PyTorch see tests/keras_xmr/losses/test_gather.py.

Replicas of TensorFlow need a process of their own: keras_xmr/experiments/training/test_replicas.py.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from keras_xmr import losses

# Of each device, which has three images.
ROWS = np.array([[0, 1, 2, 2], [0, 0, 1, 2]])


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="of JAX")
def test_gradients_of_two_devices_are_those_of_one(random):
    import jax

    images = random.normal(size=(2, 3, 8)).astype("f")
    captions = random.normal(size=(2, 4, 8)).astype("f")
    weights = [random.normal(size=(8, 6)).astype("f") for _ in range(2)]
    loss = losses.SmoothAP()

    def whole(weights, images, captions, rows):
        sides = ops.matmul(images, weights[0]), ops.matmul(captions, weights[1])
        found = (np.arange(6) % 3 == 0)[:, None] & (rows != 1)
        return loss(*sides, rows) + loss(*sides, positives=found)

    def gathered(weights, images, captions, rows):
        sides = ops.matmul(images, weights[0]), ops.matmul(captions, weights[1])
        images, captions, rows = losses.gather(*sides, rows, axis_name="all")
        numbers = losses.gather_labels(ops.arange(3), axis_name="all")
        found = (numbers == 0)[:, None] & (rows != 1)
        return loss(images, captions, rows) + loss(images, captions, positives=found)

    def step(*batch):
        value, slopes = jax.value_and_grad(gathered)(*batch)
        return value, jax.lax.pmean(slopes, "all")

    spread = jax.pmap(step, axis_name="all", in_axes=(None, 0, 0, 0))
    values, slopes = spread(weights, images, captions, ROWS)
    batch = images.reshape(6, 8), captions.reshape(8, 8), np.concatenate([ROWS[0], 3 + ROWS[1]])
    expected, right = jax.value_and_grad(whole)(weights, *batch)
    np.testing.assert_allclose(values, [expected] * 2, rtol=1e-5)
    for slope, wanted in zip(slopes, right, strict=True):
        np.testing.assert_allclose(slope[0], wanted, atol=1e-6, rtol=1e-3)
        assert np.abs(wanted).max() > 1e-3
