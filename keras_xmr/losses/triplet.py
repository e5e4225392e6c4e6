"""The losses of VSE0, VSE++ and, on sets, of PVSE."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from data_pipelines.option_types import NonNegativeInt, PositiveFloat, Reduction
from keras_xmr.config.contracts import LossContract
from keras_xmr.losses.queries_base import (
    LOWEST,
    DirectionsLoss,
    Queries,
    hardest_negatives,
    mean_of_violating,
    positive_pairs,
    switch_after_warm_up,
)


class Triplet(DirectionsLoss):
    """Hinge loss of a query, one of its positives and a negative, in both directions.

    max(0, margin + s(query, negative) - s(query, positive)) for every pair of a query and one of
    its positives; over all negatives (VSE0) or the one that scores highest (VSE++), Faghri et al.
    2018, Eq. 5 and 6; or the mean over those that violate the margin (Hermans et al. 2017, "batch
    all" without zeros). A positive of the query is never among its negatives. On the scores of
    `max_cosine` it is the multiple-instance loss of Song and Soleymani 2019, Eq. 5.

    Args:
        margin: Required difference of the scores of a positive and a negative.
        mining: "sum" takes all negatives, "mean" the mean over those that violate the margin,
            "hardest" the one that scores highest. Where many "negatives" are relevant but not
            annotated, "mean" does best (docs/results/scenes.md).
        reduction: "sum" adds up all pairs, as the released code of VSE++ does; "mean" divides
            by their number, as that of PVSE does. With "sum" mining every candidate counts, so
            that is the number of pairs times the number of candidates.
        warmup_steps: Number of first steps in which "hardest" takes all negatives: a model that
            begins with the hardest ones may never leave the state in which all scores are equal.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        reads_step=True,
        only_with={"warmup_steps": {"mining": "hardest"}},
        # XLA must know the shapes in each branch of a graph, and matches are counted there.
        compiles=False,
        when=(({"mining": "hardest", "warmup_steps": 0}, {"compiles": True}),),
    )

    def __init__(
        self,
        *,
        margin: PositiveFloat = 0.2,
        mining: Literal["sum", "mean", "hardest"] = "hardest",
        reduction: Reduction = "sum",
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.margin = margin
        self.mining = mining
        self.reduction = reduction
        self.warmup_steps = warmup_steps

    def one_way(self, queries: Queries, direction: str, step: Any) -> Any:
        scores, positives = queries.scores, queries.positives
        totals = {
            "sum": lambda: self._over_all(scores, positives),
            "mean": lambda: ops.sum(mean_of_violating(self._hinges(scores, positives))),
            "hardest": lambda: self._over_hardest(scores, positives),
        }
        total = switch_after_warm_up(step, self.warmup_steps, totals["sum"], totals[self.mining])
        return total if self.reduction == "sum" else total / queries.number_of_pairs()

    def _over_all(self, scores: Any, positives: Any) -> Any:
        """The sum of the hinges of all pairs of a query and a positive, and all its negatives.

        With the reduction "mean" it is divided by the number of candidates.
        """

        def sum_single_positives() -> Any:
            positive = ops.sum(ops.where(positives, scores, 0.0), axis=1, keepdims=True)
            # A query without a positive has no hinge, as if it had one far above.
            positive = ops.where(ops.any(positives, axis=1, keepdims=True), positive, -LOWEST)
            hinges = ops.relu(self.margin + (scores - positive))
            return ops.sum(ops.where(positives, 0.0, hinges))

        def sum_pairs() -> Any:
            return ops.sum(self._hinges(scores, positives))

        # Where no query has several, no pairs need to be gathered.
        most = ops.max(ops.sum(ops.cast(positives, "int32"), axis=1))
        total = ops.cond(most <= 1, sum_single_positives, sum_pairs)
        if self.reduction == "sum":
            return total
        return total / ops.cast(ops.shape(scores)[1], "float32")

    def _hinges(self, scores: Any, positives: Any) -> Any:
        """Hinges (P, M) of all P pairs of a query and a positive with negatives; 0 elsewhere."""
        pairs = positive_pairs(scores, positives)
        hinges = ops.relu(self.margin + (pairs.scores - pairs.positive_scores))
        return ops.where(pairs.positives, 0.0, hinges)

    def _over_hardest(self, scores: Any, positives: Any) -> Any:
        """The sum of the hinges of all those pairs and the hardest negative of the query."""
        # A query that all candidates match has no negative, and no hinge.
        hinges = ops.relu(self.margin + (hardest_negatives(scores, positives) - scores))
        return ops.sum(ops.where(positives, hinges, 0.0))
