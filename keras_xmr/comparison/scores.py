"""Whether one system is better than another, from their scores alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from keras_xmr.errors import ArgumentError
from keras_xmr.judgements import as_judgements, check_image_ids
from keras_xmr.judgements.relation import Judgements
from keras_xmr.metrics.bootstrap import (
    RESAMPLES,
    Difference,
    Estimate,
    holm,
    mean_of_runs,
    resampled_means,
)
from keras_xmr.metrics.functions import score_matrices_of
from keras_xmr.metrics.names import DIRECTIONS, RSUM, metric_title
from keras_xmr.metrics.ranking import RECALL_AT, QueryMetrics
from keras_xmr.metrics.retrieval import RetrievalMetrics, evaluate_scores
from keras_xmr.reporting.table import Table

_METRICS = (*(f"recall_{k}" for k in RECALL_AT), "r_precision", "map_at_r")


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of two systems, as fractions.

    Attributes:
        values: What each has, the mean over its runs.
        difference: The second minus the first: with its 95 % interval and its p-value.
        p_holm: The p-value, corrected for all metrics that were compared (Holm).
        smallest_effect: The smallest difference that this test, uncorrected, would have found in
            four cases of five.
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
        metrics: What was compared, by the name of the metric.
        runs: How many runs each has.
    """

    names: tuple[str, str]
    metrics: Mapping[str, ComparedMetric]
    runs: tuple[int, int]

    def table(self) -> Table:
        """The comparison as a table, in percent."""
        first, second = self.names
        header = ["metric", first, second, "difference", "95 % interval", "p (Holm)", "detectable"]
        rows = []
        for name, own in self.metrics.items():
            d = own.difference
            side, _, rest = name.partition("_")
            title = metric_title(name) if name == RSUM else f"{side} {metric_title(rest)}"
            numbers = [f"{100 * value:.1f}" for value in own.values]
            numbers += [f"{100 * d.value:+.2f}", f"{100 * d.low:+.2f} to {100 * d.high:+.2f}"]
            numbers += [f"{own.p_holm:.4f}", f"{100 * own.smallest_effect:.2f}"]
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
    Of a system with several runs, what another seed changes counts with Student's t (see
    `keras_xmr.metrics.bootstrap.Estimate`); of one with a single run, the intervals speak of that
    run alone.

    Args:
        scores_a: Scores (images, captions) of the first system, as `keras_xmr.metrics.recall` takes
            them; or a list of such, one for each run.
        scores_b: The same of the second one.
        judgements: What is right; see `keras_xmr.metrics.recall`.
        image_ids: The row of each caption's image, int (captions,), where the judgements do not say
            so: captions of one image are not independent. By default that of the judgements if each
            caption has one right image there; if not, captions are resampled on their own.
        names: What both are called in tables.
        resamples: How often the queries are resampled.
        seed: Seed of the resamples.

    Raises:
        ArgumentError: If shapes do not fit, no pair is right, or nothing is resampled.
        ValueError: If a score is NaN.
    """
    if not isinstance(resamples, Integral) or resamples < 1:
        raise ArgumentError(f"resamples is a whole number from 1 on, not {resamples!r}")
    if not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed is a whole number from 0 on, not {seed!r}")
    sides = [[score_matrices_of(run) for run in _runs(scores)] for scores in (scores_a, scores_b)]
    shapes = {matrices.shape for runs in sides for matrices in runs}
    if len(shapes) != 1:
        listed = " and ".join(map(str, sorted(shapes)))
        raise ArgumentError(f"compare takes scores of the same images and captions, not {listed}")
    (shape,) = shapes
    right = as_judgements(judgements, shape)
    if not right.grades.nnz:
        raise ArgumentError("no pair is right, so nothing can be compared")
    owner = _owner(right, image_ids)
    left, other = (
        _estimates([evaluate_scores(run, right) for run in runs], owner, shape[0], resamples, seed)
        for runs in sides
    )
    apart = {name: other[name] - left[name] for name in left}
    found = {name: own.difference() for name, own in apart.items()}
    corrected = holm([difference.p_value for difference in found.values()])
    metrics = {
        name: ComparedMetric(
            (left[name].value, other[name].value),
            difference,
            float(p_holm),
            apart[name].smallest_effect(),
        )
        for (name, difference), p_holm in zip(found.items(), corrected, strict=True)
    }
    return ScoreComparison(names, metrics, (len(sides[0]), len(sides[1])))


def _runs(scores: Any) -> Sequence[Any]:
    """The runs of a system: a list of matrices has several; a list of rows is one matrix."""
    if isinstance(scores, list) and scores and np.ndim(scores[0]) != 1:
        return scores
    return [scores]


def _owner(right: Judgements, image_ids: Any) -> np.ndarray | None:
    """The image of each caption; None where it is not known."""
    images, captions = right.shape
    if image_ids is None:
        grades = right.grades.tocsc()
        return grades.indices if (np.diff(grades.indptr) == 1).all() else None
    return check_image_ids(image_ids, images, captions)


def _estimates(
    runs: Sequence[RetrievalMetrics],
    owner: np.ndarray | None,
    images: int,
    resamples: int,
    seed: int,
) -> dict[str, Estimate]:
    """The mean over runs of each metric, over resamples of the images with their captions."""
    observed: dict[str, np.ndarray] = {}
    resampled: dict[str, np.ndarray] = {}
    for side, name in itertools.product(DIRECTIONS, _METRICS):
        values = np.stack([_queries(run, side).values[name] for run in runs], axis=1)
        if np.isnan(values).all():
            continue
        draws: dict[str, Any] = {"resamples": resamples, "seed": seed}
        if side == "t2i":
            own = {"seed": seed + 1} if owner is None else {"groups": owner, "num_groups": images}
            draws |= own
        observed[f"{side}_{name}"] = np.nanmean(values, axis=0)
        resampled[f"{side}_{name}"] = resampled_means(values, **draws)
    recalls = [name for name in observed if "_recall_" in name]
    for whole in (observed, resampled):
        whole[RSUM] = np.sum([whole[name] for name in recalls], axis=0)
    return {name: mean_of_runs(observed[name], resampled[name]) for name in observed}


def _queries(run: RetrievalMetrics, side: str) -> QueryMetrics:
    return run.image_to_text if side == "i2t" else run.text_to_image
