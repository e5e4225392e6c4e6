"""Feature maps of pretrained towers, averaged by area."""

from __future__ import annotations

import keras
import numpy as np
import pytest

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
