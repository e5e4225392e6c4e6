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
from keras_xmr.judgements.relation import Judgements, as_array
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference
from keras_xmr.metrics.names import metric_title
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.metrics.retrieval import evaluate_scores
from keras_xmr.metrics.score_matrices import ScoreMatrices, ScoreTiles
from keras_xmr.reranking.base import Reranked
from keras_xmr.utils.errors import ArgumentError

LEAST_GROUPS = 30
"""Number of images, or of independent captions, from which on there are intervals.

By simulation of recalls between 0.2 and 0.9, intervals of 95 % hold 28 to 89 % of 2 images, 84 to
93 % of 10, 90 to 95 % of 20, and 93 to 95 % of 30; all others of this package hold 92 % or more.
"""

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
            them; or a list of such, one for each run. A tuple of matrices is refused, as it may be
            two runs or two directions.
        scores_b: The same of the second one.
        judgements: The relevant pairs; see `keras_xmr.metrics.recall`.
        image_ids: The row of each caption's image, int (captions,): captions of one image are not
            independent. By default that of the judgements if each caption has one relevant image
            there; otherwise captions are resampled independently.
        names: The names of both in tables.
        resamples: Number of resamples of the queries.
        seed: Seed of the resamples.

    Raises:
        ArgumentError: If shapes do not fit, no pair is relevant, `resamples` is less than 1, or
            fewer than `LEAST_GROUPS` images, or independent captions, have a relevant item.
        ValueError: If a score is NaN.
    """
    for name, value, least in (("resamples", resamples, 1), ("seed", seed, 0)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ArgumentError(f"{name} is a whole number from {least} on, not {value!r}")
    if isinstance(names, str) or len(names) != 2:
        raise ArgumentError(
            f"names are two, one for each system, such as ('a', 'b'), not {names!r}"
        )
    first_name, second_name = names
    sides = [[ScoreMatrices.of(run) for run in _runs(scores)] for scores in (scores_a, scores_b)]
    shapes = {matrices.image_to_text.shape for runs in sides for matrices in runs}
    listed = " and ".join(map(str, sorted(shapes)))
    if any(len(shape) != 2 for shape in shapes):
        raise ArgumentError(
            f"compare takes matrices (images, captions), or a list of them, not shape {listed}; of "
            "an array of several runs, make a list: list(scores)"
        )
    if len(shapes) != 1:
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
    for side, groups in (("i2t", None), ("t2i", owner)):
        _refuse_few(side, per_query[side], groups)
    estimates = estimate_means(per_query, sizes, owner, shape[0], resamples, seed)
    tested = compare_estimates([second - first for first, second in estimates.values()])
    metrics = {
        name: ComparedMetric((first.value, second.value), *test)
        for (name, (first, second)), test in zip(estimates.items(), tested, strict=True)
    }
    return ScoreComparison((first_name, second_name), metrics, sizes)


def _runs(scores: Any) -> Sequence[Any]:
    """The runs of a system: a list of matrices has several; a list of rows is one matrix."""
    if isinstance(scores, list) and not scores:
        raise ArgumentError("a system has no scores: the list is empty; give a matrix for each run")
    if type(scores) is tuple and any(_rank(part) != 1 for part in scores):
        raise ArgumentError(
            "a tuple may be several runs, or the scores of both directions: give several runs as a "
            "list, and both directions as ScoreMatrices(image_to_text, text_to_image)"
        )
    if isinstance(scores, list) and _rank(scores[0]) != 1:
        return scores
    return [scores]


def _rank(scores: Any) -> int | None:
    """The number of dimensions of an array or of nested lists; None of the scores of a class."""
    if isinstance(scores, ScoreMatrices | ScoreTiles | Reranked):
        return None
    return as_array(scores, "scores").ndim


def _refuse_few(side: str, per_query: Mapping[str, np.ndarray], groups: np.ndarray | None) -> None:
    """Refuses fewer groups of queries than intervals need; a side without any is left out."""
    answered = ~np.isnan(next(iter(per_query.values()))).any(axis=1)
    numbers = np.flatnonzero(answered) if groups is None else groups[answered]
    if 0 < (count := len(np.unique(numbers))) < LEAST_GROUPS:
        unit = "images" if side == "i2t" or groups is not None else "captions"
        raise ArgumentError(
            f"the {side} queries with a relevant item are of {count} {unit}, and an interval of so "
            f"few does not hold what it says; compare on {LEAST_GROUPS} or more"
        )


def _owner(right: Judgements, image_ids: Any) -> np.ndarray | None:
    """The image of each caption; None if it is not known."""
    images, captions = right.shape
    if image_ids is None:
        grades = right.grades.tocsc()
        return grades.indices if (np.diff(grades.indptr) == 1).all() else None
    return check_image_ids(image_ids, images, captions)
