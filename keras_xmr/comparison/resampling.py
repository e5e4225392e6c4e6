"""Metrics of methods over resamples of queries and runs, and tests of their differences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_xmr.comparison.results import Methods, RunResult
from keras_xmr.comparison.summary_tables import ANNOTATED
from keras_xmr.metrics import DIRECTIONS, METRICS, RSUM, metric_title
from keras_xmr.metrics.bootstrap import (
    RESAMPLES,
    Difference,
    Estimate,
    holm,
    mean_of_runs,
    resampled_means,
)

_COMPARED = [metric for metric in METRICS.values() if metric.compared]
HEADLINES = {RSUM: metric_title(RSUM)} | {
    f"{side}_{metric.name}": f"{side} {metric.title}"
    for metric in _COMPARED
    if metric.compared == "headline"
    for side in DIRECTIONS
}
"""The metrics with differences on the page; the others are in the CSV file."""

ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class Resampled:
    """Metrics of methods by one kind of judgements, over resamples.

    Attributes:
        judgements: The kind of judgements.
        methods: The methods.
        estimates: An estimate per method for each metric, over its runs and over resamples of the
            queries.
    """

    judgements: str
    methods: list[str]
    estimates: dict[str, list[Estimate]]

    def of(self, metric: str, method: str) -> Difference:
        """A metric of a method, as its difference to 0, with its interval."""
        return self.estimates[metric][self.methods.index(method)].difference()


def resample(methods: Methods) -> list[Resampled]:
    """Resamples the queries for each kind of judgements.

    Images are resampled, and their captions with them, so both directions and RSUM come from the
    same resamples. (If the images of captions are not known, captions are resampled
    independently.) For a method with several runs, the variance over seeds is included (see
    `Estimate`); for a single run, the estimates are about that run alone.

    Args:
        methods: The runs of each method.
    """
    return [_resample_kind(methods, kind) for kind in _common_kinds(methods)]


def required_resamples(methods: int) -> int:
    """Number of resamples for significant differences between the given number of methods.

    Holm multiplies the smallest p-value, 2 / (resamples + 1), by the number of pairs.
    """
    return max(RESAMPLES, 100 * methods * (methods - 1) // 2)


def _resample_kind(methods: Methods, kind: str) -> Resampled:
    runs = [run for of_method in methods.values() for run in of_method]
    tested = [name for metric in _COMPARED for name in metric.mean_of or (metric.name,)]
    per_query = {
        side: {name: _per_query(runs, kind, f"{side}_{name}") for name in tested}
        for side in DIRECTIONS
    }
    queries, resamples = runs[0].queries, required_resamples(len(methods))
    owner, images = queries.caption_image, len(queries.image_ids)
    sizes = [len(of_method) for of_method in methods.values()]
    estimates = estimate_means(per_query, sizes, owner, images, resamples, seed=0)
    return Resampled(kind, list(methods), estimates)


@dataclass(frozen=True)
class Pair:
    """The difference of two methods in one metric.

    Attributes:
        judgements: The kind of judgements.
        metric: The metric, such as `i2t_recall_1`.
        left: A method.
        right: Another one.
        difference: left - right, over queries and runs.
        p_holm: Its p-value, corrected for all pairs of methods in this metric (Holm).
        smallest_effect: The smallest difference that this test, uncorrected, detects with a power
            of 0.8.
    """

    judgements: str
    metric: str
    left: str
    right: str
    difference: Difference
    p_holm: float
    smallest_effect: float

    @property
    def is_real(self) -> bool:
        """True if the difference is significant."""
        return self.p_holm < ALPHA


def compare_pairs(compared: Sequence[Resampled]) -> list[Pair]:
    """Tests all pairs of methods by paired bootstrap, in all metrics against all judgements.

    Args:
        compared: The metrics of the methods over resamples, per kind of judgements.
    """
    pairs = []
    for of_kind in compared:
        names = list(itertools.combinations(of_kind.methods, 2))
        for metric, estimates in of_kind.estimates.items():
            minus = [left - right for left, right in itertools.combinations(estimates, 2)]
            for (left, right), test in zip(names, compare_estimates(minus), strict=True):
                pairs.append(Pair(of_kind.judgements, metric, left, right, *test))
    return pairs


def compare_estimates(minus: Sequence[Estimate]) -> Iterator[tuple[Difference, float, float]]:
    """Yields differences, their p-values corrected for all of them, and the smallest effects."""
    differences = [estimate.difference() for estimate in minus]
    corrected = holm([difference.p_value for difference in differences])
    for estimate, difference, p_holm in zip(minus, differences, corrected, strict=True):
        yield difference, float(p_holm), estimate.smallest_effect()


def estimate_means(
    per_query: Mapping[str, Mapping[str, np.ndarray]],
    sizes: Sequence[int],
    caption_image: np.ndarray | None,
    images: int,
    resamples: int,
    seed: int,
) -> dict[str, list[Estimate]]:
    """Means of metrics per system, over its runs and over resamples of the queries.

    Args:
        per_query: For "i2t" and "t2i" the values of each metric, float (queries, runs), with the
            runs of one system after those of another.
        sizes: Number of runs per system.
        caption_image: The image of each caption, int (captions,), which is drawn together with
            it; None to draw captions independently.
        images: Number of images.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        An estimate per system, by the names of metrics such as `i2t_recall_1`; metrics without
        any value are left out.
    """
    observed: dict[str, np.ndarray] = {}
    resampled: dict[str, np.ndarray] = {}
    for side, metrics in per_query.items():
        known = {n: values for n, values in metrics.items() if not np.isnan(values).all()}
        if not known:
            continue
        draws: dict[str, Any] = {"seed": seed}
        if side == "t2i":
            groups = {"groups": caption_image, "num_groups": images}
            draws = {"seed": seed + 1} if caption_image is None else draws | groups
        flat = np.concatenate(list(known.values()), axis=1)
        means = resampled_means(flat, resamples=resamples, **draws)
        parts = np.split(means, len(known), axis=1)
        for (name, values), part in zip(known.items(), parts, strict=True):
            observed[f"{side}_{name}"] = np.nanmean(values, axis=0)
            resampled[f"{side}_{name}"] = part
    for whole in (observed, resampled):
        _combine(whole)

    def by_system(values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum(sizes)[:-1], axis=-1)

    return {
        metric: list(map(mean_of_runs, by_system(of_runs), by_system(resampled[metric])))
        for metric, of_runs in observed.items()
    }


def _combine(whole: dict[str, np.ndarray]) -> None:
    """Adds RSUM, and replaces metrics by the means of them."""
    whole[RSUM] = np.sum([whole[name] for name in whole if "_recall_" in name], axis=0)
    for side, metric in itertools.product(DIRECTIONS, _COMPARED):
        names = [f"{side}_{name}" for name in metric.mean_of]
        if known := [whole.pop(name) for name in names if name in whole]:
            whole[f"{side}_{metric.name}"] = np.mean(known, axis=0)


def _per_query(runs: Sequence[RunResult], judgements: str, metric: str) -> np.ndarray:
    """The values of a metric (queries, runs), float64; NaN where any run has none."""
    first = runs[0].queries
    ids = first.image_ids if metric.startswith("i2t") else first.caption_ids
    nothing = np.full(len(ids), np.nan)
    columns = [run.queries.values[judgements].get(metric, nothing) for run in runs]
    values = np.stack(columns, axis=1).astype(np.float64)
    values[np.isnan(values).any(axis=1)] = np.nan
    return values


def _common_kinds(methods: Methods) -> list[str]:
    """The kinds of judgements that all runs were measured against."""
    runs = [run.queries.values for of_method in methods.values() for run in of_method]
    return [kind for kind in runs[0] if all(kind in values for values in runs)]


def most_judged(methods: Methods) -> str:
    """The most complete kind of judgements: the exhaustive truth, if there is one."""
    return "truth" if "truth" in _common_kinds(methods) else ANNOTATED
