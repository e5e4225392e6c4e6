"""Metrics of both directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.ranking import (
    RECALL_AT,
    RELEVANT_AT,
    QueryMetrics,
    count_ranks,
    evaluate_direction,
    positive_ranks,
    summarize,
)
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores


@dataclass(frozen=True)
class RetrievalMetrics:
    """Metrics of a score matrix.

    Attributes:
        summary: Metrics as fractions, by names such as `i2t_recall_1` and `t2i_r_precision`;
            and `rsum`, the sum of all six recalls. Ranks and `found_K` are counts.
        image_to_text: Metrics of every image as a query.
        text_to_image: Metrics of every caption as a query.
    """

    summary: dict[str, float]
    image_to_text: QueryMetrics
    text_to_image: QueryMetrics

    @classmethod
    def from_queries(cls, i2t: QueryMetrics, t2i: QueryMetrics) -> RetrievalMetrics:
        """The metrics of both directions, summarized."""
        return cls(both_directions(summarize(i2t), summarize(t2i)), i2t, t2i)

    @property
    def fully_judged(self) -> bool:
        """True if every pair was judged; otherwise the metrics are of condensed lists."""
        return self.image_to_text.judged is None

    def and_also(self, other: RetrievalMetrics) -> RetrievalMetrics:
        """These metrics and others of the same queries, such as `plausible_match`."""
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
    """All metrics of scores against judgements, in both directions.

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
    """The metrics of `evaluate_scores` against several judgements; tiles are computed once."""
    scores = ScoreMatrices.of(scores)
    if scores.is_dense:
        rows, columns = scores.by_query
        ranks = [
            (positive_ranks(rows, judgements), positive_ranks(columns, judgements.transpose()))
            for judgements in relations
        ]
    else:
        ranks = count_ranks(scores, relations)
    results = []
    for both in ranks:
        i2t, t2i = (evaluate_direction(direction, precision_at) for direction in both)
        metrics = RetrievalMetrics.from_queries(i2t, t2i)
        summary = metrics.summary | {"rsum": rsum(metrics.summary)}
        results.append(replace(metrics, summary=summary))
    return results


def rsum(summary: Mapping[str, float]) -> float:
    """The sum of the six recalls."""
    return sum(
        summary.get(f"{direction}_recall_{k}", 0.0)
        for direction in ("i2t", "t2i")
        for k in RECALL_AT
    )


def both_directions(i2t: dict[str, float], t2i: dict[str, float]) -> dict[str, float]:
    """One summary of the summaries of both directions."""
    return {f"i2t_{name}": value for name, value in i2t.items()} | {
        f"t2i_{name}": value for name, value in t2i.items()
    }


def fold_members(
    num_images: int, image_of_caption: np.ndarray, folds: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the images and the captions of consecutive folds of the images.

    Args:
        num_images: Number of images.
        image_of_caption: The image that each caption was written for, int (captions,).
        folds: Number of folds.

    Raises:
        ValueError: If the images do not split into folds of one size.
    """
    if num_images % folds:
        raise ValueError(f"{num_images} images do not split into {folds} folds of one size")
    size = num_images // folds
    for fold in range(folds):
        images = np.arange(fold * size, (fold + 1) * size)
        yield images, np.flatnonzero(image_of_caption // size == fold)
