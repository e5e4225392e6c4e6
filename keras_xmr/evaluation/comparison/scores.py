"""Tests the difference of two systems from their scores alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from keras_xmr.evaluation.comparison.figures import compare_estimates, estimate_means
from keras_xmr.evaluation.reporting.table import Table
from keras_xmr.judgements import as_judgements, check_image_ids
from keras_xmr.judgements.relation import Judgements
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference
from keras_xmr.metrics.names import metric_title
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.metrics.retrieval import evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.utils.errors import ArgumentError

_METRICS = (*(f"recall_{k}" for k in RECALL_AT), "r_precision", "map_at_r")


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of two systems, as fractions.

    Attributes:
        values: The mean over the runs, per system.
        difference: The second minus the first: with its 95 % interval and its p-value.
        p_holm: The p-value, corrected for all metrics that were compared (Holm).
        smallest_effect: The smallest difference that this test, uncorrected, detects with a power
            of 0.8.
    """

    values: tuple[float, float]
    difference: Difference
    p_holm: float
    smallest_effect: float


@dataclass(frozen=True)
class ScoreComparison:
    """Two systems on the same queries.

    Attributes:
        names: Their names.
        metrics: The comparison per metric, by its name.
        runs: The number of runs per system.
    """

    names: tuple[str, str]
    metrics: Mapping[str, ComparedMetric]
    runs: tuple[int, int]

    def table(self) -> Table:
        """The comparison as a table, in percent."""
        first, second = self.names
        header = ["metric", first, second, "difference", "95 % interval", "p (Holm)", "detectable"]
        rows = []
        for name, metric in self.metrics.items():
            d = metric.difference
            title = metric_title(name).replace("\n", " ")
            numbers = [f"{100 * value:.1f}" for value in metric.values]
            numbers += [f"{100 * d.value:+.2f}", f"{100 * d.low:+.2f} to {100 * d.high:+.2f}"]
            numbers += [f"{metric.p_holm:.4f}", f"{100 * metric.smallest_effect:.2f}"]
            rows.append([title, *numbers])
        return Table(
            f"{second} minus {first}; runs: {self.runs[0]} and {self.runs[1]}", header, rows
        )

    def markdown(self) -> str:
        """The table in Markdown."""
        return self.table().markdown()

    def latex(self) -> str:
        """The table in LaTeX."""
        return self.table().latex()

    def __str__(self) -> str:
        return str(self.table())


def compare(
    scores_a: Any,
    scores_b: Any,
    judgements: Any = None,
    *,
    image_ids: Any = None,
    names: tuple[str, str] = ("a", "b"),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ScoreComparison:
    """Tests whether the second system is better than the first, by paired bootstrap.

    Images are resampled with their captions, and both systems are measured on the same resamples.
    For a system with several runs, the variance over seeds is included with Student's t (see
    `keras_xmr.metrics.bootstrap.Estimate`); for a single run, the intervals are about that run
    alone.

    Args:
        scores_a: Scores (images, captions) of the first system, as `keras_xmr.metrics.recall` takes
            them; or a list of such, one for each run.
        scores_b: The same of the second one.
        judgements: The relevant pairs; see `keras_xmr.metrics.recall`.
        image_ids: The row of each caption's image, int (captions,): captions of one image are not
            independent. By default that of the judgements if each caption has one relevant image
            there; otherwise captions are resampled independently.
        names: The names of both in tables.
        resamples: Number of resamples of the queries.
        seed: Seed of the resamples.

    Raises:
        ArgumentError: If shapes do not fit, no pair is relevant, or `resamples` is less than 1.
        ValueError: If a score is NaN.
    """
    if not isinstance(resamples, Integral) or resamples < 1:
        raise ArgumentError(f"resamples is a whole number from 1 on, not {resamples!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed is a whole number from 0 on, not {seed!r}")
    sides = [[ScoreMatrices.of(run) for run in _runs(scores)] for scores in (scores_a, scores_b)]
    shapes = {matrices.shape for runs in sides for matrices in runs}
    if len(shapes) != 1:
        listed = " and ".join(map(str, sorted(shapes)))
        raise ArgumentError(f"compare takes scores of the same images and captions, not {listed}")
    (shape,) = shapes
    right = as_judgements(judgements, shape)
    if not right.grades.nnz:
        raise ArgumentError("no pair is relevant, so nothing can be compared")
    runs = [evaluate_scores(matrices, right) for matrices in (*sides[0], *sides[1])]
    both = {"i2t": [run.image_to_text for run in runs], "t2i": [run.text_to_image for run in runs]}
    per_query = {
        side: {name: np.stack([q.values[name] for q in queries], axis=1) for name in _METRICS}
        for side, queries in both.items()
    }
    sizes, owner = (len(sides[0]), len(sides[1])), _owner(right, image_ids)
    estimates = estimate_means(per_query, sizes, owner, shape[0], resamples, seed)
    tested = compare_estimates([second - first for first, second in estimates.values()])
    metrics = {
        name: ComparedMetric((first.value, second.value), *test)
        for (name, (first, second)), test in zip(estimates.items(), tested, strict=True)
    }
    return ScoreComparison(names, metrics, sizes)


def _runs(scores: Any) -> Sequence[Any]:
    """The runs of a system: a list of matrices has several; a list of rows is one matrix."""
    if isinstance(scores, list) and scores and np.ndim(scores[0]) != 1:
        return scores
    return [scores]


def _owner(right: Judgements, image_ids: Any) -> np.ndarray | None:
    """The image of each caption; None if it is not known."""
    images, captions = right.shape
    if image_ids is None:
        grades = right.grades.tocsc()
        return grades.indices if (np.diff(grades.indptr) == 1).all() else None
    return check_image_ids(image_ids, images, captions)
