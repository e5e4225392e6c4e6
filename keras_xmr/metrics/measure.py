"""All metrics of the scores of a split, and a file of the metrics of every query."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.judgements import GroundTruth, Judgements, as_judgements, check_image_ids
from keras_xmr.metrics.label_matches import match_by_labels
from keras_xmr.metrics.query_metrics import QueryMetric
from keras_xmr.metrics.ranking import RECALL_AT, RELEVANT_AT, QueryMetrics
from keras_xmr.metrics.retrieval import RetrievalMetrics, evaluate_relations, evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores
from keras_xmr.metrics.semantic import precision_by_relevance
from keras_xmr.utils.directions import full_name
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.foreign_arrays import as_array
from keras_xmr.utils.naming import snake_case

SHOWN = (
    *(f"recall_{k}" for k in RECALL_AT),
    "r_precision",
    *(f"relevant_{k}" for k in RELEVANT_AT),
)


@dataclass(frozen=True)
class PositivesBin:
    """The queries with similarly many relevant items.

    Attributes:
        least: The smallest number of relevant items of a query of this bin.
        most: The largest.
        queries: Number of queries, at least 1.
        positives: The mean number of relevant items.
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
    relevant items look easy; `relevant_K` is the number of them that a user sees.

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


@dataclass
class Measured:
    """The metrics of a score matrix.

    Attributes:
        metrics: Metrics against the judgements; with label vectors also `plausible_match`, with
            a relevance also `semantic_precision`.
        folds: Means over folds; empty without folds.
        extra: Metrics against further judgements, by their name.
        seconds: The time that re-ranking took, without the metrics; None for scores as they are.
    """

    metrics: RetrievalMetrics
    folds: dict[str, float] = field(default_factory=dict)
    extra: dict[str, RetrievalMetrics] = field(default_factory=dict)
    seconds: float | None = None


def measure(scores: Scores, truth: GroundTruth, folds: int = 0) -> Measured:
    """Measures scores against all judgements, labels and relevance of a ground truth.

    Args:
        scores: Scores (images, captions): arrays, memory maps, or tiles. Tiles are ranked one by
            one, unless metrics are wanted that read whole matrices.
        truth: The ground truth.
        folds: Number of folds over which means are taken in addition; 0 for none.

    Raises:
        ValueError: If shapes differ, a score is NaN, or the images do not split into folds.
    """
    matrices = ScoreMatrices.of(scores)
    by_relevance = truth.relevance is not None or truth.extra_relevance
    if by_relevance or truth.has_label_vectors or truth.measures:
        matrices = matrices.dense()
    metrics, *extra = evaluate_relations(matrices, [truth.judgements, *truth.extra.values()])
    measured = Measured(_with_further(metrics, matrices, truth))
    for (name, judgements), metrics in zip(truth.extra.items(), extra, strict=True):
        chosen = measure_chosen(matrices, truth, judgements)
        measured.extra[name] = metrics if chosen is None else metrics.and_also(chosen)
    if folds:
        measured.folds = mean_over_folds(
            truth,
            folds,
            lambda *members: all_metrics(matrices.select(*members), truth.select(*members)),
        )
    return measured


def per_query(
    scores: object,
    judgements: object = None,
    *,
    image_ids: ArrayLike | None = None,
    labels: object = None,
    relevance: object = None,
    metrics: Sequence[QueryMetric] = (),
) -> dict[str, np.ndarray]:
    """Returns all metrics of every query, for tests and plots of one's own.

    Args:
        scores: Scores, as `recall` takes them.
        judgements: The relevant pairs; see `recall`.
        image_ids: The row of each caption's image, int (captions,), for labels, and in place of
            judgements where there are none. By default as in the judgements if each caption has
            one relevant image there.
        labels: Labels of the images, 0 and 1, (images, labels), for PMRP; see `plausible_match`.
        relevance: Semantic relevance (images, captions), for ASP; see `semantic_precision`.
        metrics: Further metrics, such as `DiscountedGain(k=20)`.

    Returns:
        By names such as `i2t_recall_1` float arrays (images,), and as `t2i_recall_1` (captions,);
        NaN for a query without a relevant item.

    Raises:
        ArgumentError: If shapes do not fit.
        ValueError: If a score is NaN.
    """
    matrices = ScoreMatrices.of(scores)
    given = image_ids if judgements is None else judgements
    right = as_judgements(given, matrices.image_to_text.shape)
    images, captions = right.shape
    owner = owners(right, image_ids)
    truth = GroundTruth(range(images), range(captions), owner, right)  # type: ignore[arg-type]
    if labels is not None:
        vectors = as_array(labels, "labels")
        is_known = owner is not None and vectors.ndim == 2 and len(vectors) == images
        is_binary = vectors.dtype.kind in "biuf" and np.isin(vectors, (0, 1)).all()
        if not is_known or not is_binary:
            raise ArgumentError(
                f"labels are 0 and 1 of shape ({images}, labels), with image_ids, the row of each "
                "caption's image"
            )
        truth.labels = [tuple(np.flatnonzero(row).tolist()) for row in vectors]
        truth.has_sets_of_labels = True
    truth.relevance = None if relevance is None else as_array(relevance, "relevance")
    is_list = isinstance(metrics, list | tuple)
    if not is_list or not all(isinstance(metric, QueryMetric) for metric in metrics):
        raise ArgumentError(
            f"metrics are a list of QueryMetric, such as [DiscountedGain(k=20)], not {metrics!r}"
        )
    truth.measures = {snake_case(type(metric).__name__): metric for metric in metrics}
    directions = measure(matrices, truth).metrics.directions
    return {
        full_name(direction, name): values
        for direction, queries in directions.items()
        for name, values in queries.values.items()
    }


def owners(judgements: Judgements, image_ids: ArrayLike | None = None) -> np.ndarray | None:
    """Returns the image of each caption, int (captions,); None if it is not known.

    Args:
        judgements: The relevant pairs.
        image_ids: The images; by default the relevant ones, if each caption has one.
    """
    if image_ids is not None:
        return check_image_ids(image_ids, *judgements.shape)
    grades = judgements.grades.tocsc()
    return grades.indices if (np.diff(grades.indptr) == 1).all() else None


def check_values(metric: object, values: object, queries: int) -> np.ndarray:
    """Checks the values that a metric has returned, (queries,).

    Raises:
        ArgumentError: If the values are not numbers of this shape.
    """
    returned = type(values).__name__
    if isinstance(values, np.ndarray):
        if values.shape == (queries,) and values.dtype.kind in "biuf":
            return values
        returned = f"{values.dtype} of shape {values.shape}"
    raise ArgumentError(
        f"{type(metric).__module__}.{type(metric).__qualname__} returned {returned} for {queries} "
        f"queries; return the figure of every query, numbers of shape ({queries},), NaN for a "
        "query without a relevant item: intervals and comparisons are made of these"
    )


def measure_chosen(
    scores: ScoreMatrices, truth: GroundTruth, judgements: Judgements | None = None
) -> RetrievalMetrics | None:
    """Returns the metrics that a config has chosen; None without any.

    Args:
        scores: Scores (images, captions).
        truth: The ground truth of the images and captions.
        judgements: The relevant pairs, if they differ from the ground truth.
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


Measure = Callable[[ScoreMatrices, GroundTruth], RetrievalMetrics | None]

MEASURES: tuple[Measure, ...] = (match_by_labels, precision_by_relevance, measure_chosen)
"""Metrics that do not follow from ranks, for ground truths with labels or relevance."""


def all_metrics(scores: ScoreMatrices, truth: GroundTruth) -> RetrievalMetrics:
    """Returns metrics against the judgements, and by labels and relevance if these are known.

    Args:
        scores: Scores (images, captions).
        truth: The ground truth of the images and captions.

    Raises:
        ValueError: If shapes differ, or a score is NaN.
    """
    return _with_further(evaluate_scores(scores, truth.judgements), scores, truth)


def _with_further(
    metrics: RetrievalMetrics, scores: ScoreMatrices, truth: GroundTruth
) -> RetrievalMetrics:
    """Adds metrics by labels, by relevance and of the config."""
    for measure_by in MEASURES:
        if (further := measure_by(scores, truth)) is not None:
            metrics = metrics.and_also(further)
    return metrics


def mean_over_folds(
    truth: GroundTruth,
    folds: int,
    metrics_of: Callable[[np.ndarray, np.ndarray], RetrievalMetrics],
) -> dict[str, float]:
    """Returns means of metrics over consecutive folds of the images, with their captions.

    Args:
        truth: The ground truth of the images and captions.
        folds: Number of folds.
        metrics_of: Gives the metrics of a fold, of its images and its captions (their numbers).

    Raises:
        ValueError: If the images do not split into folds of one size.
    """
    size, rest = divmod(truth.shape[0], folds)
    if rest:
        raise ValueError(f"{truth.shape[0]} images do not split into {folds} folds of one size")
    summaries = []
    for fold in range(folds):
        images = np.arange(fold * size, (fold + 1) * size)
        captions = np.flatnonzero(truth.caption_image // size == fold)
        summaries.append(metrics_of(images, captions).summary)
    # A fold may lack metrics of the others, as without a query with labels.
    names = [name for name in summaries[0] if all(name in summary for summary in summaries)]
    return {name: float(np.mean([summary[name] for summary in summaries])) for name in names}


def write_queries(
    path: Path,
    measured: Mapping[str, Measured],
    truth: GroundTruth,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Writes the metrics and the number of relevant items of every query of some score matrices.

    The file holds `image_ids` and `caption_ids`, with `caption_image`, the image that each
    caption was written for, and the `captions` themselves, if they are known; and for each
    matrix and metric a float32 array in their order: `<matrix>/i2t_<metric>` (images,) and
    `<matrix>/t2i_<metric>` (captions,), and `<matrix>/<judgements>/...` for further judgements.
    NaN marks a query without a value. Among the metrics are `positives`, `<metric>_chance` of a
    random ranking if the number of relevant items does not determine it, and `judged`, the number
    of judged candidates, if some were not judged.

    Args:
        path: The `.npz` file.
        measured: The metrics, by the name of the matrix.
        truth: The images and captions.
        notes: Texts that the file holds in addition, by names without a slash.
    """
    arrays: dict[str, np.ndarray] = {
        "image_ids": np.array(truth.image_ids, np.str_),
        "caption_ids": np.array(truth.caption_ids, np.str_),
        "caption_image": np.asarray(truth.caption_image, np.int64),
    }
    if len(truth.texts):
        arrays["captions"] = np.array(truth.texts, np.str_)
    for name, result in measured.items():
        arrays |= _arrays(name, result.metrics)
        for judgements, metrics in result.extra.items():
            arrays |= _arrays(f"{name}/{judgements}", metrics)
    arrays |= {name: np.array(text) for name, text in (notes or {}).items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    atomic_write(path, buffer.getvalue())


def _arrays(prefix: str, metrics: RetrievalMetrics) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for direction, queries in metrics.directions.items():
        values = queries.values | {"positives": queries.positives}
        values |= {f"{name}_chance": mean for name, mean in queries.chance.items()}
        if queries.judged is not None:
            values["judged"] = queries.judged
        arrays |= {
            f"{prefix}/{full_name(direction, n)}": v.astype(np.float32) for n, v in values.items()
        }
    return arrays
