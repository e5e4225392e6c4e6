"""Base class of the metrics that a config can choose."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal

import numpy as np

from data_pipelines.errors import ArgumentError
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics.ranking import QueryMetrics
from keras_xmr.metrics.retrieval import RetrievalMetrics
from keras_xmr.metrics.score_matrices import ScoreMatrices


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


def check_values(metric: Any, values: Any, queries: int) -> np.ndarray:
    """Checks the values that a metric has returned, (queries,).

    Raises:
        ArgumentError: If the values are not numbers of this shape.
    """
    name = f"{type(metric).__module__}.{type(metric).__qualname__}"
    array = values if isinstance(values, np.ndarray) else None
    if array is None or array.shape != (queries,) or array.dtype.kind not in "biuf":
        returned = type(values).__name__
        if array is not None:
            returned = f"{array.dtype} of shape {array.shape}"
        raise ArgumentError(
            f"{name} returned {returned} for {queries} queries; return the figure of every query, "
            f"numbers of shape ({queries},), NaN for a query without a relevant item: intervals "
            "and comparisons are made of these"
        )
    return array


def measure_chosen(
    scores: ScoreMatrices, truth: GroundTruth, judgements: Judgements | None = None
) -> RetrievalMetrics | None:
    """The metrics that a config has chosen; None without any.

    Args:
        scores: Scores (images, captions).
        truth: The ground truth of the images and captions.
        judgements: The relevant pairs, if they are not those of the ground truth.
    """
    if not truth.measures:
        return None
    judgements = judgements or truth.judgements
    both = judgements, judgements.transpose()
    i2t, t2i = (
        QueryMetrics(
            {
                name: check_values(metric, metric(rows, right), len(rows))
                for name, metric in truth.measures.items()
            },
            right.counts(),
        )
        for rows, right in zip(scores.by_query, both, strict=True)
    )
    return RetrievalMetrics.from_queries(i2t, t2i)
