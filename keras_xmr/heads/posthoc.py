"""Variances that are computed from the features of the training split: BayesVLM, held-out ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from data_pipelines.option_types import PositiveFloat, PositiveInt
from keras_xmr.config.contracts import HeadContract
from keras_xmr.config.registry import snake_case
from keras_xmr.heads.base import HeadError, PooledHead, PoolingMaker
from keras_xmr.heads.pooling import Projection
from keras_xmr.layers import l2_normalize

_LEAST = 1e-20


class Laplace(PooledHead):
    """A fixed mean, and the posterior uncertainty of the matrix that computes it.

    BayesVLM (Baumann et al. 2024): the last matrix of a tower has a Gaussian posterior, a Laplace
    approximation with Kronecker factors, so an input phi has a Gaussian embedding: with variance
    (phi^T A^-1 phi) (B^-1)_dd of number d. Items unlike those of the training have a large
    variance.
    It is computed in closed form at the start of the training (`train.start: cca`), by
    `keras_xmr.training.posthoc`; nothing of it is trained, and no loss moves the mean.

    The mean is put on the unit sphere, and variances are divided by the square of its norm, which
    leaves the moments of cosines as they are.

    Args:
        dimension: D.
        pooling: Makes the pooling, a `projection`.
        temperature: Temperature of the InfoNCE loss that defines the curvature.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="gaussian", reads_pooling=True, needs_start="cca")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        temperature: PositiveFloat = 0.07,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.temperature = temperature
        _check_projection(self)

    def build(self, features_shape: tuple[Any, ...]) -> None:
        super().build(features_shape)
        shape = (features_shape[-1], features_shape[-1])
        self.input_covariance = self.add_fixed("input_covariance", shape, "identity")
        self.output_variance = self.add_fixed("output_variance", (self.dimension,), "ones")

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        mean = ops.stop_gradient(self.pooled(features, mask))
        inputs = ops.stop_gradient(self.pooling.standardised(features, mask))
        spread = ops.sum(ops.matmul(inputs, self.input_covariance) * inputs, axis=1, keepdims=True)
        squares = ops.sum(mean * mean, axis=1, keepdims=True)
        variance = spread * self.output_variance / ops.maximum(squares, _LEAST)
        return {"mean": l2_normalize(mean), "log_variance": ops.log(ops.maximum(variance, _LEAST))}

    def set_posterior(self, input_covariance: np.ndarray, output_variance: np.ndarray) -> None:
        """Sets the factors of the posterior: A^-1 (F, F), and the diagonal of B^-1 (D,)."""
        self.input_covariance.assign(input_covariance)
        self.output_variance.assign(output_variance)


class HeldOutRank(PooledHead):
    """A point on the unit sphere, with a variance that predicts how badly it is retrieved.

    The log-variance, equal in all D numbers, is a linear function of the standardised features that
    predicts the logarithm of the rank of the annotated item. Ranks of the training split itself
    would all be 1, so they are those of items that are held out: `train.start: cca` sets the
    function by CCA of the other folds and ridge regression, in closed form
    (`keras_xmr.training.posthoc`). That of captions is fitted to a random part of the words of each
    caption, too, which is retrieved worse. No loss moves it; losses train the point.

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
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        if folds < 2:
            raise HeadError("folds: nothing is held out with a single one; write 2 or more")
        self.folds = folds
        _check_projection(self)

    def build(self, features_shape: tuple[Any, ...]) -> None:
        super().build(features_shape)
        self.slope = self.add_fixed("slope", (features_shape[-1],))
        self.intercept = self.add_fixed("intercept", ())

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        mean = l2_normalize(self.pooled(features, mask))
        inputs = ops.stop_gradient(self.pooling.standardised(features, mask))
        log_rank = ops.matmul(inputs, self.slope[:, None]) + self.intercept
        return {"mean": mean, "log_variance": ops.broadcast_to(log_rank, ops.shape(mean))}

    def set_prediction(self, slope: np.ndarray, intercept: float) -> None:
        """Sets the linear function of the standardised features: slope (F,) and intercept."""
        self.slope.assign(slope)
        self.intercept.assign(intercept)


def _check_projection(head: PooledHead) -> None:
    if not isinstance(head.pooling, Projection):
        name = snake_case(type(head).__name__)
        raise HeadError(f"the head {name} reads standardised features; write pooling: projection")
