"""Heads of frozen towers that leave the mean as it is, and say how uncertain it is."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_xmr.config.contracts import HeadContract
from keras_xmr.config.registry import snake_case
from keras_xmr.heads.base import HeadError, PooledHead, PoolingMaker
from keras_xmr.heads.pooling import Projection
from keras_xmr.layers import ReZero, l2_normalize
from keras_xmr.utils.option_types import BelowOne, PositiveFloat, PositiveInt

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


# Bounds of scale and shape in the released code, where it computes a variance.
_SCALES = (1e-4, 5.0)
_SHAPES = (0.1, 5.0)


class GeneralizedGaussian(PooledHead):
    """A fixed mean, and a generalised Gaussian around a reconstruction of it.

    ProbVLM, the adapter for frozen towers of Upadhyay et al. 2023, section 3.2. A network of the
    mean z makes a reconstruction of it, a scale alpha and a shape beta for every number. Their
    variance, alpha^2 Gamma(3 / beta) / Gamma(1 / beta), is the `log_variance` of the embedding.

    The mean is that of the pooling, on the unit sphere, and no loss moves it: the uncertainty is of
    an existing embedding, and its retrieval results do not change. For `train.start: cca`,
    with `generalized_gaussian_likelihood` as the loss.

    The network is that of the released code: two hidden layers and a residual connection, then one
    hidden layer for each of the three. It differs in that scale and shape are exponentials, which
    always learn, where the code has a ReLU, and begin equal for all items; and the part of the
    uncertainty that the paper samples by dropout at test time is left out.

    Args:
        dimension: D.
        pooling: Makes the pooling of the mean.
        hidden: Width of the hidden layers before the three branches.
        dropout: Part of the last hidden layer that is dropped in training.
        initial_scale: Initial alpha.
        initial_shape: Initial beta; 2 is a Gaussian, 1 a Laplace distribution.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="gaussian", keys=("reconstruction", "log_scale", "log_shape"))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        hidden: PositiveInt = 256,
        dropout: BelowOne = 0.1,
        initial_scale: PositiveFloat = 0.1,
        initial_shape: PositiveFloat = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.hidden = hidden
        self.dropout = dropout
        self.initial_scale = initial_scale
        self.initial_shape = initial_shape
        self.trunk = linear_layers("trunk", hidden, hidden, dimension, dropout=dropout)
        self.reconstruct = linear_layers("reconstruct", dimension, dimension)
        self.scale_network = linear_layers("scale_network", dimension, dimension)
        self.shape_network = linear_layers("shape_network", dimension, dimension)
        self.scale_factor = ReZero(name="scale_factor")
        self.shape_factor = ReZero(name="shape_factor")

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        networks = [self.trunk, self.reconstruct, self.scale_network, self.shape_network]
        return [*networks, self.scale_factor, self.shape_factor]

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> dict[str, Any]:
        mean = ops.stop_gradient(l2_normalize(self.pooled(features, mask)))
        inner = mean + self.trunk(mean, training=training)
        log_scale = self.scale_factor(self.scale_network(inner)) + math.log(self.initial_scale)
        log_shape = self.shape_factor(self.shape_network(inner)) + math.log(self.initial_shape)
        log_scale, log_shape = _within(log_scale, _SCALES), _within(log_shape, _SHAPES)
        return {
            "mean": mean,
            "log_variance": log_variance(log_scale, log_shape),
            "reconstruction": self.reconstruct(inner),
            "log_scale": log_scale,
            "log_shape": log_shape,
        }


def log_variance(log_scale: Any, log_shape: Any) -> Any:
    """Logarithm of the variance of generalised Gaussians (Upadhyay et al. 2023, section 3.2).

    Args:
        log_scale: Logarithms of alpha.
        log_shape: Logarithms of beta, of the same shape.
    """
    inverse = ops.exp(-log_shape)
    return 2.0 * log_scale + tf.math.lgamma(3.0 * inverse) - tf.math.lgamma(inverse)


def linear_layers(name: str, *widths: int, dropout: float = 0.0) -> keras.Sequential:
    """Linear layers of these widths, with a ReLU between them, and dropout before the last."""
    layers = [
        keras.layers.Dense(width, activation="relu", dtype="float32") for width in widths[:-1]
    ]
    ends = [keras.layers.Dropout(dropout, dtype="float32")] if dropout else []
    return keras.Sequential(
        [*layers, *ends, keras.layers.Dense(widths[-1], dtype="float32")], name=name
    )


def _within(logarithm: Any, bounds: tuple[float, float]) -> Any:
    return ops.clip(logarithm, math.log(bounds[0]), math.log(bounds[1]))


# A concentration of e^12 is a point in any dimension that is in use.
_LARGEST = 12.0


class Spherical(PooledHead):
    """A fixed direction, and the concentration of a distribution on the sphere around it.

    AsymVLM (Ju et al. 2025): a caption is a distribution on the unit sphere, an image a point, as
    captions say less than images. A network of the direction makes its concentration kappa. The
    embedding has -log kappa as the `log_variance` of each number: where kappa is large, that is its
    variance along the sphere.

    The direction is that of the pooling, and no loss moves it: the uncertainty is of an existing
    embedding, and its retrieval results do not change. In the paper the network makes both, kappa
    as the norm of its output. For `train.start: cca`, with the loss `spherical_likelihood`.

    Args:
        dimension: D.
        pooling: Makes the pooling of the direction.
        hidden: Width of the hidden layers; 1024 in the released code.
        hidden_layers: Number of hidden layers; 3 in the released code.
        initial_concentration: Initial kappa of all items.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="gaussian")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        hidden: PositiveInt = 256,
        hidden_layers: PositiveInt = 3,
        initial_concentration: PositiveFloat = 16.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.hidden = hidden
        self.initial_concentration = initial_concentration
        self.network = linear_layers("network", *[hidden] * hidden_layers, 1)
        self.factor = ReZero(name="factor")

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        return [self.network, self.factor]

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        mean = ops.stop_gradient(l2_normalize(self.pooled(features, mask)))
        concentration = self.factor(self.network(mean)) + math.log(self.initial_concentration)
        concentration = ops.clip(concentration, -_LARGEST, _LARGEST)
        return {"mean": mean, "log_variance": ops.broadcast_to(-concentration, ops.shape(mean))}
