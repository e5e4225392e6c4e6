"""KL regularizer of Gaussian embeddings."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import Reduction
from keras_xmr.losses.queries_base import ItemsLoss, Queries


class KLDivergence(ItemsLoss):
    """KL of every embedding to N(0, I), images and captions added.

    Chun et al. 2021, section 3.2.1, where it is called the KL divergence loss.

    Args:
        reduction: "sum" adds up all items, to which the weights of the paper belong; "mean"
            divides each side by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(accepts=("gaussian",))

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def sum_over_items(self, items: Queries) -> Any:
        mean, log_variance = items.queries["mean"], items.queries["log_variance"]
        divergence = 0.5 * ops.sum(
            mean * mean + ops.exp(log_variance) - 1.0 - log_variance, axis=-1
        )
        if self.reduction == "sum":
            return ops.sum(divergence)
        return items.share * ops.mean(divergence)
