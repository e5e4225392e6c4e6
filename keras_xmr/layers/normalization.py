"""L2 and batch normalisation, and learned factors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import keras
from keras import ops

from keras_xmr.layers.backend import backend
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

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
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


def batch_normalization(*, masked: bool = False, **options: Any) -> keras.layers.BatchNormalization:
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


class Temperature(RecordedLayer):
    """Divides scores by a temperature.

    The logarithm is learned. The temperature stays at 0.01 or above, as in Radford et al. 2021; at
    the bound its gradient is not cut off, so that it can rise again.

    Args:
        initial: The temperature, or the initial value of a learned one.
        learnable: Whether it is learned.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, initial: float, learnable: bool = False, **kwargs: Any) -> None:
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

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.supports_masking = True
        self.factor = self.add_scalar("factor", 0.0)

    def call(self, branch: Tensor) -> Tensor:
        return ops.cast(branch, "float32") * self.factor
