"""The loss of PCME."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import Reduction
from keras_xmr.losses.base import Relations
from keras_xmr.losses.queries_base import Queries, QueriesLoss


class SoftContrastive(QueriesLoss):
    """Soft cross-modal contrastive loss over all pairs of the batch (Chun et al. 2021, Eq. 1).

    -log p for pairs that match and -log(1 - p) for the others, where the scores are the log-odds of
    the match probability p. Both directions are counted, as in the released code, so
    everything is doubled.

    Args:
        reduction: "sum" adds up all pairs, to which the weights of the paper belong; "mean"
            divides by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(parts=("positive", "negative"), reads_log_odds=True)

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Any) -> dict[str, Any]:
        del columns, step
        positive = ops.where(rows.positives, ops.softplus(-rows.scores), 0.0)
        negative = ops.where(rows.positives, 0.0, ops.softplus(rows.scores))
        parts = {"positive": positive, "negative": negative}
        if self.reduction == "sum":
            return {part: 2.0 * ops.sum(values) for part, values in parts.items()}
        return {part: 2.0 * rows.share * ops.mean(values) for part, values in parts.items()}

    def trivial_value(self, scores: Any, relations: Relations) -> Any:
        share = ops.mean(ops.cast(relations["positives"], "float32"))
        odds = ops.log(share) - ops.log1p(-share)
        return sum(self(ops.zeros_like(scores) + odds, {}, {}, relations).values())
