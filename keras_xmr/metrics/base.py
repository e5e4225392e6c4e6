"""Base class of the metrics that a config can choose."""

from __future__ import annotations

import abc
from typing import ClassVar, Literal

import numpy as np

from keras_xmr.judgements import Judgements


class QueryMetric(abc.ABC):
    """A metric of every query, for `evaluation.metrics`; it is measured in both directions.

    A subclass has a `TITLE`, which heads its column, and a `UNIT` (fractions are shown in percent),
    and implements `__call__`. Its options are the keyword-only parameters of its
    constructor, and its name that of the class in snake case.
    """

    TITLE: str
    UNIT: ClassVar[Literal["fraction", "count", "rank"]] = "fraction"

    @abc.abstractmethod
    def __call__(self, scores: np.ndarray, judgements: Judgements) -> np.ndarray:
        """The value of every query, (queries,); NaN for a query without a relevant item.

        Args:
            scores: Scores (queries, candidates), larger is better.
            judgements: The relevant pairs, of the same shape.
        """
