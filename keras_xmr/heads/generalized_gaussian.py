"""The head of ProbVLM."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from data_pipelines.option_types import BelowOne, PositiveFloat, PositiveInt
from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.base import PooledHead, PoolingMaker
from keras_xmr.layers import ReZero, l2_normalize

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
