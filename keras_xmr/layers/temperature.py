"""A temperature, fixed or learned."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_xmr.layers.part import RecordedLayer

_LOWEST = 0.01


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
            self.log_temperature = self.add_weight(
                name="log_temperature",
                shape=(),
                initializer=keras.initializers.Constant(math.log(initial)),
            )

    def build(self, scores_shape: Any) -> None:
        """Nothing is left to build."""

    def value(self) -> Any:
        """The temperature."""
        if not self.learnable:
            return self.initial
        logarithm = ops.convert_to_tensor(self.log_temperature)
        below = ops.relu(math.log(_LOWEST) - logarithm)
        return ops.exp(logarithm + ops.stop_gradient(below))

    def call(self, scores: Any) -> Any:
        return scores / self.value()
