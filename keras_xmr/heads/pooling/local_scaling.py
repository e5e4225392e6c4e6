"""Cross-domain similarity local scaling (CSLS) within the vectors of a tower."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_xmr.linear.hubness import NEIGHBOURS, hubness
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Shape, Tensor

_NUMBERS = 4
_OF_CAPTIONS = np.eye(_NUMBERS)[[1, 0, 3, 2]]
_NOT_THERE = -2.0  # Below every cosine.


class LocalScaling(RecordedLayer):
    """Appends four numbers to unit vectors, so that the inner products of two sides are CSLS.

    Some items are near everything, and are retrieved for too many queries: hubs. CSLS (Conneau et
    al. 2018, section 2.3) changes a cosine c to c' = c / 2 - (r(image) + r(caption)) / 4, where r
    is the mean cosine with the 10 nearest of some items of the other side, less the mean of r over
    the own side. As c' is an inner product of unit vectors, matchers, indexes and exports need not
    know; but cosines are halved, and cosines of two images, or of two captions, are near
    (c + 1) / 2. Training sees r = 0.

    Args:
        items: Largest number of items of the other side that are kept.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    NUMBERS = _NUMBERS
    """Number of numbers that are appended."""

    def __init__(self, items: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.items = items

    def build(self, vectors_shape: Shape) -> None:
        shape = (self.items, vectors_shape[-1])
        self.neighbours = self.add_fixed("neighbours", shape, autocast=False)
        self.count = self.add_fixed("count", (), autocast=False)
        self.mean_hubness = self.add_fixed("mean_hubness", (), autocast=False)
        self.weight = self.add_fixed("weight", (), autocast=False)
        # Which of the four numbers is which: another order for captions.
        self.axes = self.add_fixed("axes", (_NUMBERS, _NUMBERS), "identity", autocast=False)

    def call(self, vectors: Tensor, training: bool | None = None) -> Tensor:
        """Returns unit vectors (B, D + 4) of unit vectors (B, D)."""
        if training:
            shift = ops.zeros_like(vectors[:, 0])
        else:
            shift = self.weight * (self._hubness(vectors) - self.mean_hubness)
        return ops.concatenate([vectors, self._shifting(shift)], axis=-1) * 0.5**0.5

    def _hubness(self, vectors: Tensor) -> Tensor:
        """Returns the mean cosine with the nearest `NEIGHBOURS` of the other side, (B,)."""
        cosines = ops.matmul(vectors, ops.transpose(self.neighbours))
        there = ops.arange(self.items, dtype="float32") < self.count
        most = min(NEIGHBOURS, self.items)
        nearest, _ = ops.top_k(ops.where(there, cosines, _NOT_THERE), most)
        nearest = ops.where(there[:most], nearest, 0.0)
        return ops.sum(nearest, axis=1) / ops.clip(self.count, 1.0, most)

    def _shifting(self, shift: Tensor) -> Tensor:
        """Returns unit vectors (B, 4) with inner products -(shift + shift) / 2 of two sides.

        An image has (-a, s, rest, 0) and a caption (s, -a, 0, rest), with s^2 = 1/2 and a = s
        shift: their inner product is -s a(image) - s a(caption).
        """
        half = 0.5**0.5
        above = half * ops.clip(shift, -1.0, 1.0)
        rest = ops.sqrt(ops.maximum(0.5 - above * above, 1e-12))
        numbers = [-above, half * ops.ones_like(above), rest, ops.zeros_like(above)]
        return ops.matmul(ops.stack(numbers, axis=-1), self.axes)

    def serve_captions(self) -> None:
        """Puts the four numbers in the order of captions."""
        self.axes.assign(_OF_CAPTIONS)

    def set_neighbours(self, neighbours: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Sets the items of the other side, and the mean hubness of this one.

        Args:
            neighbours: Unit vectors of the other side (N, D), of which at most `items` are kept.
            own: Unit vectors of this side, over which the mean is taken (M, D).

        Returns:
            The hubness of these, less its mean, (M,).
        """
        kept = neighbours[: self.items]
        self.neighbours.assign(np.pad(kept, [(0, self.items - len(kept)), (0, 0)]))
        self.count.assign(len(kept))
        values = hubness(np.asarray(own, np.float32) @ kept.T)
        self.mean_hubness.assign(values.mean())
        return values - values.mean()
