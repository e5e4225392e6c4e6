"""Points and rectangles, against loops over numbers."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.heads import Rectangle
from keras_xmr.heads.pooling import Mean, Projection
from keras_xmr.matchers import Cosine, PointToRectangle


def distance(point, center, offset, inside_weight):
    """Of a point to a rectangle: up to its nearest point, and from there to the center."""
    total = 0.0
    for p, c, o in zip(point, center, offset, strict=True):
        nearest = min(max(p, c - o), c + o)
        # Inside, the point is its own nearest one.
        total += (p - nearest) ** 2 + inside_weight * (nearest - c) ** 2
    return total


def rectangles(random, items, dimension=11):
    mean = random.normal(size=(items, dimension)).astype(np.float32)
    return {"mean": mean, "offset": np.abs(random.normal(size=mean.shape)).astype(np.float32)}


@pytest.mark.parametrize("inside_weight", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("dimension", [1, 8, 11])
def test_scores_are_those_of_loops(random, inside_weight, dimension):
    image, caption = rectangles(random, 3, dimension), rectangles(random, 4, dimension)
    found = PointToRectangle(inside_weight=inside_weight)(image, caption)
    expected = [
        [
            -0.5 * distance(image["mean"][i], caption["mean"][j], caption["offset"][j], weight)
            - 0.5 * distance(caption["mean"][j], image["mean"][i], image["offset"][i], weight)
            for j in range(4)
        ]
        for i in range(3)
        for weight in [inside_weight]
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


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


def test_a_saved_head_has_the_same_options():
    head = Rectangle(6, lambda: Mean(6), initial_offset=0.02, normalize=False)
    again = Rectangle.from_config(head.get_config())
    assert (again.initial_offset, again.normalize) == (0.02, False)
