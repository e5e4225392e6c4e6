"""Head of rectangles."""

from __future__ import annotations

import math
from typing import Unpack

from keras import ops

from keras_xmr.embeddings import kinds
from keras_xmr.heads.base import PoolingMaker
from keras_xmr.heads.point import Point
from keras_xmr.layers import ReZero
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat
from keras_xmr.parts.tensors import Shape, Tensor


class Rectangle(Point):
    """A point, and the half-widths of a rectangle around it (after P2RM, Wang et al. 2022).

    The rectangle is the set of all points within `offset` of `mean` in every coordinate. The
    points of everything relevant to an item are to lie inside; see `PointToRectangle`. Offsets
    come from a pooling of their own, through a softplus, so they are positive. All begin equal.

    Adapted: written from descriptions of the method in later papers.

    Args:
        dimension: D.
        pooling: Makes a pooling for the point and another for the offsets.
        initial_offset: The offset of every coordinate before training. Two random points of the
            unit sphere are about 1.1 / sqrt(D) apart in a coordinate.
        normalize: Whether the point is divided by its norm.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(keys=("offset",))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        initial_offset: PositiveFloat = 0.01,
        normalize: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, normalize=normalize, **kwargs)
        self.initial_offset = initial_offset
        self.offset_pooling = self.new_pooling("offset_pooling").for_variance()
        self.offset_pooling.name = "offset_pooling"
        self.offset_factor = ReZero(name="offset_factor")

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.offset_pooling.build(features_shape)

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Point:
        raw = self.offset_factor(self.offset_pooling(features, mask=mask))
        offset = ops.softplus(raw) * (self.initial_offset / math.log(2.0))
        return super().call(features, mask=mask) | {"offset": offset}
