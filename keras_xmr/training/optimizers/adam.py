"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.training.optimizers.base import PartwiseLearningRates
from keras_xmr.utils.option_types import BelowOne, NonNegativeFloat, PositiveFloat


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
        learning_rate: Any = 1e-3,
        *,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: PositiveFloat = 1e-8,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **kwargs
        )

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = ops.cast(learning_rate, variable.dtype) * self.factor(variable)
        super().update_step(gradient, variable, rate)


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
        learning_rate: Any = 1e-3,
        *,
        beta_1: BelowOne = 0.9,
        beta_2: BelowOne = 0.999,
        epsilon: PositiveFloat = 1e-8,
        weight_decay: NonNegativeFloat = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **kwargs)
        self.decay = weight_decay

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        rate = ops.cast(learning_rate, variable.dtype) * self.factor(variable)
        self.assign_sub(variable, variable * rate * self.decay)
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"weight_decay": self.decay}
