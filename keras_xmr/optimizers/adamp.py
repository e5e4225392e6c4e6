"""AdamP."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_xmr.optimizers.base import PartwiseLearningRates, Rate
from keras_xmr.parts.option_types import BelowOne, Fraction, NonNegativeFloat, PositiveFloat
from keras_xmr.parts.tensors import Tensor


@keras.saving.register_keras_serializable(package="keras_xmr")
class AdamP(PartwiseLearningRates, keras.optimizers.Optimizer):
    """AdamP (Heo et al. 2021): Adam that does not let scale-invariant weights grow.

    Where the gradient is nearly orthogonal to the weight, channel by channel or over the whole
    tensor, the step loses its radial part and the weight decay is scaled down. Channels are the
    last axis of a Keras kernel, and the words of an embedding.

    Args:
        learning_rate: Learning rate or schedule.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment, and to norms.
        weight_decay: Part of a weight that it loses in a step, times the learning rate.
        delta: Threshold of the cosine that counts as orthogonal, times the root of the number of
            weights.
        wd_ratio: Factor of the weight decay where the step is projected.
        nesterov: Whether Nesterov momentum is used.
        **kwargs: Passed on to `keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        *,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: PositiveFloat = 1e-8,
        weight_decay: NonNegativeFloat = 0.0,
        delta: PositiveFloat = 0.1,
        wd_ratio: Fraction = 0.1,
        nesterov: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **({"name": "adamp"} | kwargs))
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.decay = weight_decay
        self.delta = delta
        self.wd_ratio = wd_ratio
        self.nesterov = nesterov

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        self._channel_axes = [_channel_axis(variable) for variable in variables]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        dtype = variable.dtype
        rate = ops.cast(learning_rate, dtype) * self.factor(variable)
        gradient = ops.cast(gradient, dtype)
        step = ops.cast(self.iterations + 1, dtype)
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]

        self.assign_add(momentum, (gradient - momentum) * (1 - self.beta_1))
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - self.beta_2))
        correction = ops.sqrt(1 - ops.power(ops.cast(self.beta_2, dtype), step))
        denominator = ops.sqrt(velocity) / correction + self.epsilon
        if self.nesterov:
            perturbation = self.beta_1 * momentum + (1 - self.beta_1) * gradient
        else:
            perturbation = ops.convert_to_tensor(momentum)
        perturbation = perturbation / denominator

        decay_ratio = ops.ones((), dtype)
        if self._channel_axes[index] is not None:
            perturbation, decay_ratio = self._project(
                ops.convert_to_tensor(variable), gradient, perturbation, self._channel_axes[index]
            )
        if self.decay:
            self.assign_sub(variable, variable * rate * self.decay * decay_ratio)
        rate = rate / (1 - ops.power(ops.cast(self.beta_1, dtype), step))
        self.assign_sub(variable, rate * perturbation)

    def _project(
        self, weight: Tensor, gradient: Tensor, perturbation: Tensor, channel_axis: int
    ) -> tuple[Tensor, Tensor]:
        """Removes the radial part of the step where the weight looks scale-invariant."""
        others = tuple(axis for axis in range(len(weight.shape)) if axis != channel_axis)
        # Each sum is taken once, by channel; that over the layer is the sum of those.
        pairs = ((weight, weight), (gradient, gradient), (weight, gradient), (weight, perturbation))
        channels = [ops.sum(one * other, axis=others, keepdims=True) for one, other in pairs]
        layer = [ops.sum(products) for products in channels]
        size = math.prod(weight.shape)
        by_channel = self._is_invariant(channels, size / weight.shape[channel_axis])
        by_layer = ~by_channel & self._is_invariant(layer, size)
        radial = ops.where(
            by_channel,
            self._radial(channels),
            ops.where(by_layer, self._radial(layer), ops.zeros((), weight.dtype)),
        )
        ratio = ops.where(by_channel | by_layer, self.wd_ratio, 1.0)
        return perturbation - weight * radial, ops.cast(ratio, weight.dtype)

    def _is_invariant(self, products: list[Tensor], size: float) -> Tensor:
        """Returns whether gradient and weight are nearly orthogonal, by products over
        `size` numbers.
        """
        weight, gradient, both, _ = products
        norms = (ops.sqrt(weight) + self.epsilon) * (ops.sqrt(gradient) + self.epsilon)
        return ops.max(ops.abs(both) / norms) < self.delta / size**0.5

    def _radial(self, products: list[Tensor]) -> Tensor:
        """Returns the coefficient of the weight in the step."""
        return products[3] / ops.square(ops.sqrt(products[0]) + self.epsilon)

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay": self.decay,
            "delta": self.delta,
            "wd_ratio": self.wd_ratio,
            "nesterov": self.nesterov,
        }


def _channel_axis(variable: keras.Variable) -> int | None:
    """Returns the axis of the output channels; None for vectors in PyTorch.

    The bias of a GRU is a matrix in Keras, but two vectors in the original.
    """
    if len(variable.shape) < 2 or variable.name == "bias":
        return None
    return 0 if variable.name == "embeddings" else len(variable.shape) - 1
