"""Metrics of both directions, and as functions of scores and judgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.judgements import Judgements
from keras_xmr.judgements.accepted_forms import as_judgements
from keras_xmr.metrics.rank_counting import Ranks, count_ranks
from keras_xmr.metrics.ranking import (
    RECALL_AT,
    RELEVANT_AT,
    QueryMetrics,
    best_ranks,
    binary_preference,
    evaluate_direction,
    ndcg_at,
    summarize,
)
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores
from keras_xmr.utils.directions import DIRECTIONS, full_name
from keras_xmr.utils.errors import ArgumentError


@dataclass(frozen=True)
class RetrievalMetrics:
    """Metrics of a score matrix.

    Attributes:
        summary: Metrics as fractions, by names such as `i2t_recall_1` and `t2i_r_precision`;
            and `rsum`, the sum of all six recalls in percent, from 0 to 600. Ranks and
            `relevant_K` are counts.
        image_to_text: Metrics of every image as a query.
        text_to_image: Metrics of every caption as a query.
    """

    summary: dict[str, float]
    image_to_text: QueryMetrics
    text_to_image: QueryMetrics

    @classmethod
    def from_queries(cls, i2t: QueryMetrics, t2i: QueryMetrics) -> RetrievalMetrics:
        """Returns the metrics of both directions, summarized."""
        return cls(both_directions(summarize(i2t.values), summarize(t2i.values)), i2t, t2i)

    @property
    def directions(self) -> dict[str, QueryMetrics]:
        """The metrics of every query of `image_to_text` and of `text_to_image`."""
        return dict(zip(DIRECTIONS, (self.image_to_text, self.text_to_image), strict=True))

    @property
    def fully_judged(self) -> bool:
        """True if every pair was judged; otherwise the metrics are of condensed lists."""
        return self.image_to_text.judged is None

    def and_also(self, other: RetrievalMetrics) -> RetrievalMetrics:
        """Returns these metrics and others of the same queries, such as `plausible_match`."""
        return RetrievalMetrics(
            self.summary | other.summary,
            _join(self.image_to_text, other.image_to_text),
            _join(self.text_to_image, other.text_to_image),
        )


def _join(queries: QueryMetrics, others: QueryMetrics) -> QueryMetrics:
    return replace(
        queries, values=queries.values | others.values, chance=queries.chance | others.chance
    )


def evaluate_scores(
    scores: Scores, judgements: Judgements, precision_at: Sequence[int] = RELEVANT_AT
) -> RetrievalMetrics:
    """Returns all metrics of scores against judgements, in both directions.

    Args:
        scores: Scores (images, captions), larger is better. Tiles are ranked one by one.
        judgements: The relevant pairs.
        precision_at: The K of `precision_K`.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    return evaluate_relations(scores, [judgements], precision_at)[0]


def evaluate_relations(
    scores: Scores, relations: Sequence[Judgements], precision_at: Sequence[int] = RELEVANT_AT
) -> list[RetrievalMetrics]:
    """Returns the metrics of `evaluate_scores` against several judgements; tiles are computed
    once.
    """
    results = []
    for both in count_ranks(ScoreMatrices.of(scores), relations):
        i2t, t2i = (evaluate_direction(direction, precision_at) for direction in both)
        metrics = RetrievalMetrics.from_queries(i2t, t2i)
        summary = metrics.summary | {"rsum": rsum(metrics.summary)}
        results.append(replace(metrics, summary=summary))
    return results


def rsum(summary: Mapping[str, float]) -> float:
    """Returns the sum of the six recalls, in percent: from 0 to 600, as papers write it.

    NaN where a direction has no query with a relevant item, and so no recall.
    """
    names = [full_name(direction, f"recall_{k}") for direction in DIRECTIONS for k in RECALL_AT]
    return 100 * sum(summary.get(name, float("nan")) for name in names)


def both_directions(i2t: dict[str, float], t2i: dict[str, float]) -> dict[str, float]:
    """Returns one summary of the summaries of both directions."""
    return {f"i2t_{name}": value for name, value in i2t.items()} | {
        f"t2i_{name}": value for name, value in t2i.items()
    }


def recall(
    scores: object,
    judgements: object = None,
    k: int | Sequence[int] = (1, 5, 10),
    *,
    image_ids: ArrayLike | None = None,
) -> dict[str, float]:
    """Computes recall at K of both directions: the share of queries with a relevant item among
    the first K.

    Args:
        scores: Scores (images, captions), larger is better; or the output of a re-ranker, or
            `ScoreMatrices`, if other scores rank images.
        judgements: The relevant pairs; see `keras_xmr.judgements.as_judgements`: `Judgements`,
            the row of each caption's image, or a matrix; None if caption i is of image i. Where
            some pairs were not judged, the lists are condensed to those that were (Sakai 2007).
        k: One K or several, from 1.
        image_ids: The row of each caption's image, in place of judgements, as losses take it.

    Returns:
        Fractions from 0 to 1: `i2t_recall_1` of images as queries, `t2i_recall_1` of captions,
        and so on. Queries without a relevant item do not count; a direction without any query
        that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit, or K is not a whole number from 1.
        ValueError: If a score is NaN.
    """
    at = _checked_k(k)

    def recalls(ranks: Ranks) -> dict[str, np.ndarray]:
        best = best_ranks(ranks)
        return {f"recall_{n}": np.where(np.isnan(best), np.nan, best <= n) for n in at}

    return _means(scores, _one_of(judgements, image_ids), recalls)


def retrieval(
    scores: object, judgements: object = None, *, image_ids: ArrayLike | None = None
) -> dict[str, float]:
    """Returns all metrics of both directions, and `rsum`, the sum of the six recalls in percent.

    Queries without a relevant item do not count; where no query of a direction has one, its
    metrics are left out, and `rsum` is NaN.

    Args:
        scores: Scores (images, captions), larger is better; or the output of a re-ranker, or
            `ScoreMatrices`, if other scores rank images.
        judgements: The relevant pairs; see `recall`.
        image_ids: See `recall`.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    matrices = ScoreMatrices.of(scores)
    right = as_judgements(_one_of(judgements, image_ids), matrices.image_to_text.shape)
    return evaluate_scores(matrices, right).summary


def ndcg(
    scores: object,
    judgements: object = None,
    k: int | Sequence[int] = (10,),
    *,
    image_ids: ArrayLike | None = None,
) -> dict[str, float]:
    """Computes normalized discounted cumulative gain at K of both directions; see `ndcg_at`.

    Args:
        scores: Scores, as `recall` takes them.
        judgements: The relevant pairs and their grades; see `recall`.
        k: One K or several, from 1.
        image_ids: See `recall`.

    Returns:
        Fractions from 0 to 1: `i2t_ndcg_10`, `t2i_ndcg_10` and so on. Queries without a relevant
        item do not count; a direction without any query that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit, or K is not a whole number from 1.
        ValueError: If a score is NaN.
    """
    at = _checked_k(k)
    right = _one_of(judgements, image_ids)
    return _means(scores, right, lambda ranks: {f"ndcg_{n}": ndcg_at(ranks, int(n)) for n in at})


def bpref(
    scores: object, judgements: object = None, *, image_ids: ArrayLike | None = None
) -> dict[str, float]:
    """Computes binary preference of both directions; see `binary_preference`.

    Args:
        scores: Scores, as `recall` takes them.
        judgements: The relevant pairs; see `recall`. If every pair was judged, all others are
            wrong.
        image_ids: See `recall`.

    Returns:
        Fractions from 0 to 1: `i2t_bpref` and `t2i_bpref`. Queries without a right answer do not
        count; a direction without any query that has one is left out.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    right = _one_of(judgements, image_ids)
    return _means(scores, right, lambda ranks: {"bpref": binary_preference(ranks)})


def _one_of(judgements: object, image_ids: ArrayLike | None) -> Any:
    """Returns judgements, or the row of each caption's image in place of them.

    Raises:
        ArgumentError: If both are given.
    """
    if judgements is not None and image_ids is not None:
        raise ArgumentError("judgements and image_ids both say which pairs match; pass one of them")
    return image_ids if judgements is None else judgements


def _checked_k(k: int | Sequence[int]) -> np.ndarray:
    at = np.atleast_1d(np.asarray(k))
    if at.ndim != 1 or not np.issubdtype(at.dtype, np.integer) or at.min(initial=1) < 1:
        raise ArgumentError(f"k must be a whole number from 1 on, or several such, not {k!r}")
    return at


def _means(
    scores: object, judgements: object, metrics: Callable[[Ranks], dict[str, np.ndarray]]
) -> dict[str, float]:
    """Returns means of metrics of ranks, over the queries of each direction that have relevant
    items.
    """
    matrices = ScoreMatrices.of(scores)
    right = as_judgements(judgements, matrices.image_to_text.shape)
    i2t, t2i = (summarize(metrics(ranks)) for ranks in count_ranks(matrices, [right])[0])
    return both_directions(i2t, t2i)
