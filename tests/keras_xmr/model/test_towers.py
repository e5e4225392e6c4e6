"""Batches are run in the way that is fastest, and embeddings stay what they are."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.layers.backbone import run_by_length
from keras_xmr.model import towers


def convolutions(size, width):
    """A network of a dozen convolutions, with two outputs."""
    inputs = keras.Input((size, size, 3), dtype="uint8")
    maps = keras.layers.Rescaling(1 / 255)(inputs)
    for _ in range(11):
        maps = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(maps)
    sums = keras.layers.GlobalAveragePooling2D()(maps)
    return keras.Model(inputs, {"mean": sums, "local": maps[:, ::64, ::64]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "cached", "is_one_by_one"), [(128, 2**10, True), (128, 2**20, False), (64, 1, False)]
)
def test_large_activations_are_those_of_one_image_at_a_time(
    size, cached, is_one_by_one, monkeypatch
):
    monkeypatch.setattr(towers, "_CACHED", cached)
    network = convolutions(size, 4)
    images = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), np.uint8)
    run = tf.function(lambda images: towers.run_images(network, images), autograph=False)
    graph = run.get_concrete_function(tf.TensorSpec([None, size, size, 3], tf.uint8)).graph
    assert any("While" in operation.type for operation in graph.get_operations()) is is_one_by_one
    if is_one_by_one:
        expected = network(images, training=False)
        for name, values in run(images).items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-6)
        assert run(images[:0])["mean"].shape == (0, 4)


@pytest.mark.parametrize("number", [0, 1, 3, 10])
def test_captions_of_like_length_share_a_batch(number):
    random = np.random.default_rng(number)
    lengths = random.integers(0, 9, number)
    ids = np.full((number, max(lengths, default=0)), -1, np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = random.integers(0, 50, length)
    seen = []

    def encode(ids):
        seen.append(ids.shape)
        mask = ids >= 0
        return tf.where(mask, tf.cast(ids, tf.float32), 0)[..., None] * [1.0, 2.0], mask

    features, mask = run_by_length(encode, ids, -1)
    np.testing.assert_array_equal(mask, (ids >= 0)[:, : mask.shape[1]])
    np.testing.assert_array_equal(features, encode(ids)[0][:, : mask.shape[1]])
    assert sum(rows for rows, _ in seen[:-1]) == number
    if number == 10:
        assert sum(rows * length for rows, length in seen[:-1]) < ids.size
