"""The regularizer that keeps variances from collapsing."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.option_types import Reduction
from keras_xmr.losses.queries_base import Queries, QueriesLoss


@keras.saving.register_keras_serializable(package="keras_xmr")
class KLDivergence(QueriesLoss):
    """KL of every embedding to N(0, I), images and captions added.

    Chun et al. 2021, section 3.2.1, where it is called the KL divergence loss.

    Args:
        reduction: "sum" adds up all items, to which the weights of the paper belong; "mean"
            divides each side by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("image", "caption")
    NEEDS = ("gaussian",)
    READS_SCORES = False
    READS_PAIRS = False
    TAKES_MIXED = True

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def of_queries(self, rows: Queries, columns: Queries, step: Any) -> dict[str, Any]:
        del step
        return {
            "image": self._side(rows),
            "caption": self._side(columns),
        }

    def _side(self, queries: Queries) -> Any:
        mean, log_variance = queries.queries["mean"], queries.queries["log_variance"]
        divergence = 0.5 * ops.sum(
            mean * mean + ops.exp(log_variance) - 1.0 - log_variance, axis=-1
        )
        if self.reduction == "sum":
            return ops.sum(divergence)
        return queries.share * ops.mean(divergence)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"reduction": self.reduction}
