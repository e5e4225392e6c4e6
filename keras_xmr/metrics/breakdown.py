"""Metrics by the number of relevant items of a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_xmr.metrics.ranking import RECALL_AT, RELEVANT_AT, QueryMetrics

SHOWN = (*(f"recall_{k}" for k in RECALL_AT), *(f"found_{k}" for k in RELEVANT_AT))


@dataclass(frozen=True)
class PositivesBin:
    """The queries with similarly many relevant items.

    Attributes:
        least: The smallest number of relevant items of a query of this bin.
        most: The largest.
        queries: Number of queries, at least 1.
        positives: Their mean number of relevant items.
        means: Mean of each metric over them, by its name.
    """

    least: int
    most: int
    queries: int
    positives: float
    means: dict[str, float]


def by_positives(queries: QueryMetrics) -> list[PositivesBin]:
    """Recalls and distinct relevant items by the number of relevant items.

    The bins double: 1, 2, 3 to 4, 5 to 8, 9 to 16 and so on. Recall alone makes queries with many
    relevant items look easy; `found_K` is the number of them that a user sees.

    Args:
        queries: Metrics of every query, of `evaluate_scores`.

    Returns:
        The bins that have queries, in order.
    """
    number = np.ceil(np.log2(np.maximum(queries.positives, 1))).astype(int)
    number[queries.positives == 0] = -1
    bins = []
    for exponent in range(number.max(initial=-1) + 1):
        chosen = number == exponent
        if chosen.any():
            means = {name: float(queries.values[name][chosen].mean()) for name in SHOWN}
            least = 2 ** (exponent - 1) + 1 if exponent else 1
            right = float(queries.positives[chosen].mean())
            bins.append(PositivesBin(least, 2**exponent, int(chosen.sum()), right, means))
    return bins
