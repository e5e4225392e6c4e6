"""Branches that begin at 0."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_xmr")
class ReZero(keras.layers.Layer):
    """Multiplies a branch by one learned number that begins at 0 (Bachlechner et al. 2021).

    A model begins as if it had no branch.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.supports_masking = True
        self.factor = self.add_weight(name="factor", shape=(), initializer="zeros")

    def build(self, input_shape: Any = None) -> None:
        """Nothing is left to build."""

    def call(self, branch: Any) -> Any:
        return keras.ops.cast(branch, "float32") * self.factor
