"""The smooth approximation of average precision."""

from __future__ import annotations

from typing import Any

from keras import ops

from data_pipelines.option_types import PositiveFloat
from keras_xmr.losses.queries_base import DirectionsLoss, Queries


class SmoothAP(DirectionsLoss):
    """1 - average precision with smooth ranks, mean of both directions (Brown et al. 2020).

    The rank of a positive is 1 + the sum over all other candidates of sigmoid((their score - its
    score) / temperature), among all candidates and among the positives of the query; the quotient
    of both, averaged over the positives, is the smooth average precision (Bleeker and de Rijke
    2022, Eq. 2 to 5). Memory is P x M for P pairs that match and M candidates.

    Args:
        temperature: How steep the sigmoid is. Smaller is nearer to the true average precision,
            and has fewer gradients.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, *, temperature: PositiveFloat = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def one_way(self, queries: Queries, direction: str, step: Any) -> Any:
        pairs = queries.positive_pairs()
        above = ops.sigmoid((pairs.scores - pairs.positive_scores) / self.temperature)
        # The positive itself is among the candidates too, with a sigmoid of one half.
        rank = 0.5 + ops.sum(above, axis=1)
        rank_in_positives = 0.5 + ops.sum(ops.where(pairs.positives, above, 0.0), axis=1)
        return 0.5 * ops.sum(pairs.weight * (1.0 - rank_in_positives / rank))
