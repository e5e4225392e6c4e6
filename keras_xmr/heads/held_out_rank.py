"""A head that predicts how badly an item is retrieved."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from keras import ops

from keras_xmr.embeddings import kinds
from keras_xmr.heads.base import HeadError, PooledHead, PoolingMaker
from keras_xmr.heads.pooling import Projection
from keras_xmr.layers import l2_normalize
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import LayerOptions, PositiveInt
from keras_xmr.parts.tensors import Shape, Tensor


class HeldOutRank(PooledHead):
    """A point on the unit sphere, with a variance that predicts how badly it is retrieved.

    The log-variance, equal in all D numbers, is a linear function of the standardised features that
    predicts the logarithm of the rank of the annotated item. Ranks of the training split itself
    would all be 1, so items are held out for them: `train.start: cca` sets the
    function by CCA of the other folds and ridge regression, in closed form. For captions it is
    fitted to a random part of the words of each caption, too, which is retrieved worse. No loss
    moves it; losses train the point.

    Args:
        dimension: D.
        pooling: Makes the pooling, a `projection`.
        folds: Number of folds, at least 2.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        HeadError: If the pooling is not a `projection`, or there is a single fold.
    """

    CONTRACT = HeadContract(kind="gaussian", needs_start="cca")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        folds: PositiveInt = 5,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        if folds < 2:
            raise HeadError("folds: nothing is held out with a single one; write 2 or more")
        self.folds = folds
        if not isinstance(self.pooling, Projection):
            raise HeadError(
                "the head held_out_rank reads standardised features; write pooling: projection"
            )

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.slope = self.add_fixed("slope", (features_shape[-1],))
        self.intercept = self.add_fixed("intercept", ())

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Gaussian:
        mean = l2_normalize(self.pooled(features, mask))
        inputs = ops.stop_gradient(self.pooling.standardised(features, mask))
        log_rank = ops.matmul(inputs, self.slope[:, None]) + self.intercept
        return {"mean": mean, "log_variance": ops.broadcast_to(log_rank, ops.shape(mean))}

    def set_prediction(self, slope: np.ndarray, intercept: float) -> None:
        """Sets the linear function of the standardised features: slope (F,) and intercept."""
        self.slope.assign(slope)
        self.intercept.assign(intercept)
