"""The regularizer that spreads the elements of a set."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.losses.queries_base import ItemsLoss, Queries


@keras.saving.register_keras_serializable(package="keras_xmr")
class SetUniformity(ItemsLoss):
    """Mean of exp(-t |x - y|^2) over the pairs of residuals of an item, both sides added.

    The diversity loss of Kim et al. 2023, section 3.4, on residuals of unit length: what the
    local features add to the global vector. A side without residuals, or with sets of one, adds
    nothing.

    Args:
        temperature: t.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(keys=("residuals",))

    def __init__(self, *, temperature: PositiveFloat = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def of_items(self, items: Queries) -> Any:
        embedding = items.queries
        if "residuals" not in embedding or embedding["residuals"].shape[1] == 1:
            return ops.zeros(())
        residuals = ops.normalize(embedding["residuals"], axis=-1, order=2, epsilon=1e-12)
        size = residuals.shape[1]
        cosines = ops.matmul(residuals, ops.transpose(residuals, (0, 2, 1)))
        # |x - y|^2 of unit vectors is 2 - 2 cos.
        kernel = ops.exp(-2.0 * self.temperature * (1.0 - cosines)) * (1.0 - ops.eye(size))
        mean = ops.mean(ops.sum(kernel, axis=(1, 2)))
        return items.share * mean / (size * (size - 1))
