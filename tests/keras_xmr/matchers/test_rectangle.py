"""Points and rectangles; tests/backends has their scores and gradients against loops."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.heads import Rectangle
from keras_xmr.heads.pooling import Mean, Projection
from keras_xmr.matchers import Cosine, PointToRectangle


def rectangles(random, items, dimension=11):
    mean = random.normal(size=(items, dimension)).astype(np.float32)
    return {"mean": mean, "offset": np.abs(random.normal(size=mean.shape)).astype(np.float32)}


def test_points_inside_are_equally_near_where_inside_weighs_nothing():
    image = {"mean": np.zeros((1, 2)), "offset": np.full((1, 2), 0.5)}
    captions = {"mean": np.array([[0.1, 0.2], [0.5, -0.5], [0.0, 0.7]]), "offset": np.ones((3, 2))}
    found = np.asarray(PointToRectangle(inside_weight=0.0)(image, captions))[0]
    np.testing.assert_allclose(found, [0.0, 0.0, -0.5 * 0.2**2], atol=1e-7)


def test_points_without_extent_rank_as_cosines(random):
    image, caption = (rectangles(random, items)["mean"] for items in (3, 4))
    image, caption = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (image, caption))
    expected = 2.0 * np.asarray(Cosine()(image, caption)) - 2.0
    np.testing.assert_allclose(PointToRectangle()(image, caption), expected, atol=1e-5)


@pytest.mark.parametrize("policy", [None, "mixed_float16"])
@pytest.mark.parametrize("pooling", [Mean, Projection])
def test_a_head_begins_with_equal_offsets_and_learns_them(random, pooling, policy):
    features = random.normal(size=(3, 4, 5)).astype(np.float32)
    head = Rectangle(6, lambda: pooling(6, dtype=policy), initial_offset=0.02, dtype=policy)
    made = head(features)
    head.check_output(made)
    np.testing.assert_allclose(np.linalg.norm(made["mean"], axis=1), 1.0, rtol=1e-3)
    np.testing.assert_allclose(made["offset"], np.full((3, 6), 0.02), rtol=1e-5)
    head.offset_factor.factor.assign(-50.0)
    moved = np.asarray(head(features)["offset"])
    assert (moved >= 0).all()
    assert np.ptp(moved) > 0.02
