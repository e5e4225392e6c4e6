"""Feature maps of pretrained towers, averaged by area."""

from __future__ import annotations

import keras
import numpy as np
import presets
import pytest

from keras_xmr.encoders import EncoderError, InputSpec, KerasHubImage
from keras_xmr.layers.backbone import _averaged


def oracle(size: int, grid: int) -> np.ndarray:
    """The part of each cell that each position makes, from a ruler of fine marks."""
    marks = (np.arange(size * grid * 10) + 0.5) / (grid * 10)  # in positions
    shares = np.zeros((grid, size))
    for mark in marks:
        shares[int(mark * grid / size), int(mark)] += 1
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("size", "grid"), [((9, 9), 4), ((7, 7), 3), ((4, 4), 4), ((6, 9), 3)])
def test_a_map_is_averaged_by_area(random, size, grid):
    features = random.normal(size=(2, *size, 5)).astype(np.float32)
    rows, columns = (oracle(side, grid) for side in size)
    expected = np.einsum("gh,bhwf,kw->bgkf", rows, features, columns)
    found = np.asarray(_averaged(keras.ops.convert_to_tensor(features), grid))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(  # every position counts alike
        found.mean(axis=(1, 2)), features.mean(axis=(1, 2)), rtol=1e-4, atol=1e-5
    )


def test_a_map_of_the_same_size_stays_as_it_is(random):
    features = random.normal(size=(1, 4, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(_averaged(keras.ops.convert_to_tensor(features), 4), features)


def tower(preset, size=28, **options) -> keras.Model:
    inputs = keras.Input((size, size, 3), dtype="uint8")
    features, _ = KerasHubImage(preset=str(preset), **options).features(
        inputs, InputSpec(image_size=size)
    )
    return keras.Model(inputs, features)


@pytest.mark.slow
def test_a_tower_has_a_grid_and_keeps_it(random, tmp_path):
    preset = presets.resnet(tmp_path / "resnet")
    whole, averaged = tower(preset), tower(preset, grid=3)
    pixels = random.integers(0, 256, (2, 28, 28, 3)).astype(np.uint8)
    side = int(whole.output.shape[1] ** 0.5)
    assert side > 3
    features = np.asarray(whole(pixels)).reshape(2, side, side, 64)
    shares = oracle(side, 3)
    expected = np.einsum("gh,bhwf,kw->bgkf", shares, features, shares).reshape(2, 9, 64)
    np.testing.assert_allclose(averaged(pixels), expected, rtol=1e-4, atol=1e-5)
    layer = averaged.get_layer("encoder")
    again = type(layer).from_config(layer.get_config())
    assert again.get_config()["grid"] == 3
    assert again(pixels).shape == (2, 9, 64)


@pytest.mark.slow
def test_tokens_have_no_grid(tmp_path):
    preset = presets.vit(tmp_path / "vit", 32)
    with pytest.raises(EncoderError, match=r"model\.image\.encoder\.grid: .*no feature map"):
        tower(preset, 32, grid=2)
