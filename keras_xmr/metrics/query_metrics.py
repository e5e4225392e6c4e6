"""Metrics of queries that a config can choose: the reciprocal rank, and nDCG at any rank."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.rank_counting import positive_ranks
from keras_xmr.metrics.ranking import best_ranks, ndcg_at
from keras_xmr.utils.errors import ArgumentError

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import PositiveInt
    from keras_xmr.parts.registry import Choice


class QueryMetric(abc.ABC):
    """A metric of every query, for `evaluation.metrics`; it is measured in both directions.

    A subclass has a `TITLE`, which heads its column, and a `UNIT` (fractions are shown in percent),
    and implements `__call__`. Its options are the keyword-only parameters of its
    constructor, and its name is the name of the class in snake case.
    """

    TITLE: str
    UNIT: ClassVar[Literal["fraction", "count", "rank"]] = "fraction"

    @abc.abstractmethod
    def __call__(self, scores: np.ndarray, judgements: Judgements) -> np.ndarray:
        """Returns the value of every query, (queries,); NaN for a query without a relevant item.

        Args:
            scores: Scores (queries, candidates), larger is better.
            judgements: The relevant pairs, of the same shape.
        """


class ReciprocalRank(QueryMetric):
    """1 / the rank of the best relevant item; its mean is the MRR (Voorhees 1999)."""

    TITLE = "MRR"

    def __call__(self, scores: np.ndarray, judgements: Judgements) -> np.ndarray:
        return 1.0 / best_ranks(positive_ranks(scores, judgements))


class DiscountedGain(QueryMetric):
    """nDCG at any rank, for `evaluation.metrics`; see `ndcg_at`.

    Args:
        k: The number of answers that count.
    """

    TITLE = "nDCG"

    def __init__(self, *, k: PositiveInt = 20) -> None:
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise ArgumentError(f"k must be a whole number from 1 on, not {k!r}")
        self.k: int = k
        self.TITLE = f"nDCG@{k}"

    def __call__(self, scores: np.ndarray, judgements: Judgements) -> np.ndarray:
        return ndcg_at(positive_ranks(scores, judgements), self.k)


def build_metrics(choices: Iterable[Choice]) -> dict[str, QueryMetric]:
    """Builds the metrics of a config by name; each gets a column in the tables.

    Raises:
        ArgumentError: If one has no title.
    """
    metrics = {}
    for choice in choices:
        made = choice.build()
        if not isinstance(getattr(made, "TITLE", None), str):
            raise ArgumentError(
                f"{type(made).__name__} has no TITLE, which heads its column in the tables; write "
                f"TITLE = {choice.name!r} in the class"
            )
        metrics[choice.name] = made
    return metrics
