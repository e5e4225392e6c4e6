"""L2 and batch normalisation, and learned factors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Unpack

import keras

from keras_xmr.layers.backend import assign_statistics, backend
from keras_xmr.layers.operations import ops
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Tensor

_LOWEST_TEMPERATURE = 0.01


def l2_normalize(vectors: Tensor, axis: int = -1) -> Tensor:
    """Returns vectors divided by their Euclidean norm; a vector of zeros stays one.

    Unlike in `keras.ops.normalize`, the gradient is finite at a vector of zeros.
    """
    squares = ops.sum(ops.square(vectors), axis=axis, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))


class L2Normalize(RecordedLayer):
    """Divides vectors by their Euclidean norm. A vector of zeros stays one.

    Args:
        axis: The axis that the vectors lie on.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, axis: int = -1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.axis = axis

    def call(self, inputs: Tensor) -> Tensor:
        return l2_normalize(inputs, self.axis)


@keras.saving.register_keras_serializable(package="keras_xmr")
class MaskedBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalisation over valid positions, of all replicas if it is synchronized.

    The layer of Keras is not synchronized where it has a mask. Inputs are features (B, L, ...) and
    a boolean mask (B, L), or None for all; outputs are features of that shape, 0 where the mask is
    false.
    """

    def call(
        self, features: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        if mask is None:
            return super().call(features, training=training)
        normalise = partial(super().call, training=training)
        if backend() == "tensorflow":
            from keras_xmr.layers.tensorflow_paths import on_valid_positions

            return on_valid_positions(normalise, features, mask)
        inner = [1] * (len(features.shape) - 3)
        valid = ops.reshape(mask, (*ops.shape(mask), *inner))
        valid = ops.broadcast_to(valid, ops.shape(features)[:-1])
        return ops.where(valid[..., None], normalise(features, mask=valid), 0.0)


def batch_normalization(
    *, masked: bool = False, **options: object
) -> keras.layers.BatchNormalization:
    """Returns batch normalisation with the constants of PyTorch, which the published models had.

    Several replicas take the statistics of the global batch, so that they train
    as one device would.

    Args:
        masked: Whether it takes a mask.
        **options: Passed on to `keras.layers.BatchNormalization`.
    """
    replicas = 1
    if backend() == "tensorflow":
        from keras_xmr.layers.tensorflow_paths import num_replicas

        replicas = num_replicas()
    constants = {"momentum": 0.9, "epsilon": 1e-5, "synchronized": replicas > 1}
    make = MaskedBatchNormalization if masked else keras.layers.BatchNormalization
    return make(**(constants | options))


def _keeps(layer: keras.layers.Layer, values: Any) -> bool:
    """Says whether Keras computes a layer in the type of the values, and in any graph.

    Keras casts float64 to the type of the layer, and graphs of PyTorch cannot have its statistics.
    """
    if layer.compute_dtype != "float32":
        return True
    return backend() != "torch" and keras.backend.standardize_dtype(values.dtype) != "float64"


def linear(layer: keras.layers.Dense, values: Any) -> Any:
    """Applies a linear layer to values (..., F) in their own type."""
    if _keeps(layer, values):
        return layer(values)
    product = ops.matmul(values, ops.cast(layer.kernel, values.dtype))
    return product + ops.cast(layer.bias, values.dtype)


def batch_normalize(
    layer: keras.layers.BatchNormalization, values: Any, mask: Any, training: bool
) -> Any:
    """Applies batch normalisation to values in their own type.

    Args:
        layer: The layer.
        values: Values (B, ...).
        mask: 1 for valid positions (B, L), 0 for others; None for all.
        training: Whether the statistics are of these values, and are kept.
    """
    if _keeps(layer, values):
        masked = isinstance(layer, MaskedBatchNormalization) and mask is not None
        return layer(values, training=training, mask=mask > 0 if masked else mask)
    rank, axis = len(values.shape), layer.axis % len(values.shape)
    shape = [-1 if place == axis else 1 for place in range(rank)]
    gamma, beta, mean, variance = (
        ops.reshape(ops.cast(one, values.dtype), shape)
        for one in (layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance)
    )
    if training:
        kept, axes = (mean, variance), tuple(place for place in range(rank) if place != axis)
        weights = ops.ones_like(values)
        if mask is not None:
            weights = weights * ops.reshape(mask, (*mask.shape, *[1] * (rank - 2)))
        total = ops.sum(weights, axis=axes, keepdims=True) + keras.backend.epsilon()
        mean = ops.sum(values * weights, axis=axes, keepdims=True) / total
        squares = ops.square((values - mean) * weights)
        variance = ops.sum(squares, axis=axes, keepdims=True) / total
        variables = (layer.moving_mean, layer.moving_variance)
        for variable, old, new in zip(variables, kept, (mean, variance), strict=True):
            moved = layer.momentum * old + (1.0 - layer.momentum) * ops.stop_gradient(new)
            assign_statistics(variable, ops.cast(ops.reshape(moved, (-1,)), variable.dtype))
    normal = (values - mean) * ops.rsqrt(variance + layer.epsilon) * gamma + beta
    if isinstance(layer, MaskedBatchNormalization) and mask is not None:
        valid = ops.reshape(mask, (*mask.shape, *[1] * (rank - 2))) > 0
        return ops.where(valid, normal, 0.0)
    return normal


class Temperature(RecordedLayer):
    """Divides scores by a temperature.

    The logarithm is learned. The temperature stays at 0.01 or above, as in Radford et al. 2021; at
    the bound its gradient is not cut off, so that it can rise again.

    Args:
        initial: The temperature, or the initial value of a learned one.
        learnable: Whether it is learned.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, initial: float, learnable: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.initial = initial
        self.learnable = learnable
        if learnable:
            # Made here: the layers of a loss are called on replicas, where nothing can be made.
            self.log_temperature = self.add_scalar("log_temperature", math.log(initial))

    def value(self) -> Tensor | float:
        """Returns the temperature."""
        if not self.learnable:
            return self.initial
        logarithm = ops.convert_to_tensor(self.log_temperature)
        below = ops.relu(math.log(_LOWEST_TEMPERATURE) - logarithm)
        return ops.exp(logarithm + ops.stop_gradient(below))

    def call(self, scores: Tensor) -> Tensor:
        temperature = self.value()
        return scores / (ops.cast(temperature, scores.dtype) if self.learnable else temperature)


class ReZero(RecordedLayer):
    """Multiplies a branch by one learned number that begins at 0 (Bachlechner et al. 2021).

    A model begins as if it had no branch.
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.supports_masking = True
        self.factor = self.add_scalar("factor", 0.0)

    def call(self, branch: Tensor) -> Tensor:
        return ops.cast(branch, "float32") * self.factor
