"""Matcher of points and rectangles."""

from __future__ import annotations

from typing import Any, Unpack

from keras_xmr.embeddings import Point
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.base import Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, NonNegativeFloat
from keras_xmr.parts.tensors import Tensor, add_up

_SLICE = 8
"""Coordinates at a time: (N, M, 8) numbers are held, not (N, M, D)."""


class PointToRectangle(Matcher):
    """Minus the squared distance of each item's point to the rectangle of the other.

    After P2RM (Wang et al. 2022). In a coordinate a point and the centre of a rectangle are
    a = |p - c| apart. Of that, min(a, o) is inside the rectangle, with its offset o, and the rest
    is outside. The distance is the sum of outside^2 + inside_weight * inside^2 over coordinates.
    The score is minus its mean over both directions: the image's point to the caption's
    rectangle, and the caption's point to the image's. A point without `offset` is a rectangle
    without extent: between two of them the score is minus their squared Euclidean distance.

    Adapted: written from descriptions of the method in later papers.

    Args:
        inside_weight: Weight of the part of a distance that is inside the rectangle. With 0, all
            points inside are equally near.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("point",))
    SEARCH = SearchContract(augmentation="mean_l2")

    def __init__(
        self, *, inside_weight: NonNegativeFloat = 0.1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.inside_weight = inside_weight

    def call(self, image: Point, caption: Point) -> Tensor:
        dimension = image["mean"].shape[-1]
        slices = (slice(first, first + _SLICE) for first in range(0, dimension, _SLICE))
        return -0.5 * add_up(self._distances(image, caption, columns) for columns in slices)

    def score_bound(self, similarity: Tensor, image: Any, caption: Any) -> Tensor:
        """Scores the least distances that an image this far from a query's point can have.

        With t of a distance E inside, at least E - t is outside, which costs
        (E - t)^2 + inside_weight t^2: least at t = E / (1 + inside_weight). The query's rectangle
        has room for no more than the norm of its offsets, the image's perhaps for all.
        """
        squares = ops.sum(ops.square(caption["mean"]), axis=-1)
        apart = ops.sqrt(ops.maximum(squares - 2.0 * similarity, 0.0))
        least = apart / (1.0 + self.inside_weight)
        room = ops.sqrt(ops.sum(ops.square(_offset(caption)), axis=-1))
        inside = least, ops.minimum(least, room)
        costs = ((apart - t) ** 2 + self.inside_weight * t * t for t in inside)
        return -0.5 * add_up(costs)

    def _distances(self, image: Point, caption: Point, columns: slice) -> Tensor:
        """Returns the distances of both directions in some coordinates, added up (N, M)."""
        apart = ops.abs(image["mean"][:, None, columns] - caption["mean"][None, :, columns])
        costs = []
        for offset in (_offset(image)[:, None, columns], _offset(caption)[None, :, columns]):
            inside = ops.minimum(apart, offset)
            outside = apart - inside
            squares = outside * outside + self.inside_weight * inside * inside
            costs.append(ops.sum(squares, axis=-1))
        return add_up(costs)


def _offset(embedding: Point) -> Tensor:
    """Returns the offsets (N, D) of a rectangle; of a point, zeros."""
    return embedding["offset"] if "offset" in embedding else ops.zeros_like(embedding["mean"])
