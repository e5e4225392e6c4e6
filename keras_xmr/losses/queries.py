"""Functions of losses over queries. Every row of a score matrix is a query here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

Tensor = Any

LOWEST = -1e30
"""Below every score, and still finite: the difference of two infinities is not a number."""


class PositivePairs(NamedTuple):
    """All P pairs of a query and one of its positives.

    Attributes:
        scores: Scores of all candidates of the query, float32 (P, M).
        positives: Which of them are positives of the query, boolean (P, M).
        positive_scores: The score of the positive of the pair itself, float32 (P, 1).
        weight: Float32 (P,), with which a sum over the pairs is the mean over the positives of a
            query, and then over the queries that have one.
    """

    scores: Tensor
    positives: Tensor
    positive_scores: Tensor
    weight: Tensor


def positive_pairs(
    scores: Tensor, positives: Tensor, batch_positives: Tensor | None = None
) -> PositivePairs:
    """All pairs of a query and one of its positives, with the candidates of the query.

    Memory grows with the number of positives, not with the square of the candidates.

    Args:
        scores: Float32 (N, M), one row per query.
        positives: Boolean (N, M).
        batch_positives: Those of all queries that count; None if these are all.
    """
    rows, columns = ops.nonzero(positives)
    candidates = ops.take(scores, rows, axis=0)
    scores_of_positives = ops.take_along_axis(candidates, columns[:, None], axis=1)
    weight = ops.take(query_weights(positives, batch_positives), rows, axis=0)
    return PositivePairs(candidates, ops.take(positives, rows, axis=0), scores_of_positives, weight)


def mean_of_violating(hinges: Tensor) -> Tensor:
    """The mean (...,) over the last axis of those hinges that are not 0; 0 where all are."""
    violating = ops.sum(ops.cast(hinges > 0, "float32"), axis=-1)
    return ops.sum(hinges, axis=-1) / ops.maximum(violating, 1.0)


def query_weights(positives: Tensor, batch_positives: Tensor | None = None) -> Tensor:
    """Weights (N,) that make a sum over positives the mean over a query's, then over queries.

    A query without a positive does not count.

    Args:
        positives: Boolean (N, M), one row per query.
        batch_positives: Those of all queries that count; None if these are all.
    """
    counts = ops.sum(ops.cast(positives, "float32"), axis=1)
    answered = counts > 0 if batch_positives is None else ops.any(batch_positives, axis=1)
    queries = ops.sum(ops.cast(answered, "float32"))
    return 1.0 / (ops.maximum(counts, 1.0) * ops.maximum(queries, 1.0))


def number_of_pairs(positives: Tensor) -> Tensor:
    """Number of matching pairs, at least 1, as float32."""
    return ops.maximum(ops.sum(ops.cast(positives, "float32")), 1.0)


def hardest_negatives(scores: Tensor, positives: Tensor) -> Tensor:
    """The highest score among a query's negatives; `LOWEST` if all candidates match.

    Args:
        scores: Float32 (..., N, M), one row per query.
        positives: Boolean (N, M).

    Returns:
        Float32 (..., N, 1).
    """
    return ops.max(ops.where(positives, LOWEST, scores), axis=-1, keepdims=True)


def switch_after_warm_up(
    step: Tensor | None,
    warmup_steps: int,
    first: Callable[[], Tensor],
    then: Callable[[], Tensor],
) -> Tensor:
    """Computes one loss in the first steps of a training, and another afterwards.

    Args:
        step: Number of steps trained before this one; None outside of a training.
        warmup_steps: Number of first steps.
        first: Computes the loss of these steps.
        then: Computes that of all others, and that outside of a training.
    """
    if warmup_steps == 0 or step is None:
        return then()
    return ops.cond(step < warmup_steps, first, then)
