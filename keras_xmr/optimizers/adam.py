"""Adam and AdamW."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops

from keras_xmr.optimizers.base import PartwiseLearningRates, Rate
from keras_xmr.parts.option_types import BelowOne, NonNegativeFloat, PositiveFloat
from keras_xmr.parts.tensors import Tensor


@keras.saving.register_keras_serializable(package="keras_xmr")
class Adam(PartwiseLearningRates, keras.optimizers.Adam):
    """Adam (Kingma and Ba 2015), as Keras has it, with a learning rate per part of the model.

    Args:
        learning_rate: Learning rate or schedule.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        **kwargs: Passed on to `keras.optimizers.Adam`.
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        *,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: PositiveFloat = 1e-8,
        **kwargs: object,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **kwargs
        )

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        dtype, index = variable.dtype, self._get_variable_index(variable)
        rate = ops.cast(learning_rate, dtype) * self.factor(variable)
        if self.amsgrad:
            super().update_step(gradient, variable, rate)
            return
        # The same in one operation, which reads and writes each number once: docs/design.md.
        betas = [ops.cast(beta, dtype) for beta in (self.beta_1, self.beta_2)]
        powers = [ops.power(beta, ops.cast(self.iterations + 1, dtype)) for beta in betas]
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=powers[0],
            beta2_power=powers[1],
            lr=rate,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=ops.cast(self.epsilon, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )


@keras.saving.register_keras_serializable(package="keras_xmr")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    `keras.optimizers.AdamW` decays every weight by the global learning rate; here the decay
    follows the learning rate of the part, so a part with a rate of 0 stays as it is.

    Args:
        learning_rate: Learning rate or schedule.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        weight_decay: Part of a weight that it loses in a step, times the learning rate.
        **kwargs: Passed on to `keras.optimizers.Adam`.
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        *,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: PositiveFloat = 1e-8,
        weight_decay: NonNegativeFloat = 0.01,
        **kwargs: object,
    ) -> None:
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **kwargs)
        self.decay = weight_decay

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        rate = ops.cast(learning_rate, variable.dtype) * self.factor(variable)
        self.assign_sub(variable, variable * rate * self.decay)
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {"weight_decay": self.decay}
