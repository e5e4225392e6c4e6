"""A temperature, fixed or learned."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_xmr.layers.part import RecordedLayer

_LOWEST = 0.01


@keras.saving.register_keras_serializable(package="keras_xmr")
class Temperature(RecordedLayer):
    """Divides scores by a temperature.

    What is learned is the logarithm, as by Radford et al. 2021, who let a learned temperature not
    fall below 0.01. It is held there without cutting its gradient off, so that it can rise again.

    Args:
        initial: The temperature, or where a learned one starts.
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
