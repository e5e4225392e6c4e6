"""Learning rates per part of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import keras

Rate = float | keras.optimizers.schedules.LearningRateSchedule


class PartwiseLearningRates:
    """Mixin: a factor of the learning rate for each variable.

    Comes before a `keras.optimizers.Optimizer` among the bases of a class with an `update_step`
    that multiplies the learning rate by `factor(variable)`.
    """

    def set_factors(self, factors: Iterable[tuple[keras.Variable, float]]) -> None:
        """Sets the factors; must be called before the optimizer is built.

        Args:
            factors: Variables of the model and their factors; factors of all others are 1. Where
                one occurs twice, its last factor counts.
        """
        self._factors = {id(variable): factor for variable, factor in factors}

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the variables of the optimizer."""
        super().build(variables)  # type: ignore[misc]
        factors = getattr(self, "_factors", {})
        self._factor_by_index = [factors.get(id(variable), 1.0) for variable in variables]

    def factor(self, variable: keras.Variable) -> float:
        """Returns the factor of a variable of the model."""
        return self._factor_by_index[self._get_variable_index(variable)]  # type: ignore[attr-defined]
