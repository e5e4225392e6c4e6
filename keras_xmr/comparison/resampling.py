"""Metrics of methods over resamples of their queries and of their runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_xmr.comparison.results import Methods, Queries, RunResult
from keras_xmr.comparison.summary_tables import ANNOTATED
from keras_xmr.metrics import DIRECTIONS, METRICS, RSUM, metric_title
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, difference, resampled_means

_COMPARED = [metric for metric in METRICS.values() if metric.compared]
HEADLINES = {RSUM: metric_title(RSUM)} | {
    f"{side}_{metric.name}": f"{side} {metric.title}"
    for metric in _COMPARED
    if metric.compared == "headline"
    for side in DIRECTIONS
}
"""The metrics whose differences are shown on the page; the others are in the CSV file."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """What methods have against one kind of judgements.

    Attributes:
        judgements: The kind of judgements.
        methods: The methods.
        observed: For each metric the means over queries and runs (methods,).
        resampled: The same over resamples (methods, resamples).
    """

    judgements: str
    methods: list[str]
    observed: dict[str, np.ndarray]
    resampled: dict[str, np.ndarray]

    def of(self, metric: str, method: str) -> Difference:
        """A metric of a method, as its difference to 0, with its interval."""
        number = self.methods.index(method)
        return difference(float(self.observed[metric][number]), self.resampled[metric][number])


def resample(methods: Methods, seed: int = 0) -> list[Resampled]:
    """Resamples the queries, and the runs of each method, for each kind of judgements.

    Images are resampled, and their captions with them, so both directions and RSUM come from the
    same resamples. (Where it is not known which image a caption was written for, captions are
    resampled on their own.) Of a method with several runs, these are resampled as well: what it
    has then speaks of other queries and of other seeds; of a single run, of that run alone.

    Args:
        methods: The runs of each method.
        seed: Seed of the resamples.
    """
    resamples = resamples_for(len(methods))
    weights = run_weights([len(runs) for runs in methods.values()], resamples, seed)
    return [_of_kind(methods, kind, weights, seed) for kind in _common_kinds(methods)]


def resamples_for(methods: int) -> int:
    """How many resamples tell pairs of so many methods apart.

    Holm multiplies the smallest p-value, 2 / (resamples + 1), by the number of pairs.
    """
    return max(RESAMPLES, 100 * methods * (methods - 1) // 2)


def run_weights(runs: Sequence[int], resamples: int, seed: int) -> list[np.ndarray]:
    """What each run counts in the mean of its method, in every resample.

    n runs are drawn from n with repetition. The variance of such a mean is too small by a factor
    of (n - 1) / n, which for two runs is a half; so the weights are spread out to make up for it.

    Args:
        runs: How many runs each method has.
        resamples: How many resamples there are.
        seed: Seed of the draws.

    Returns:
        Float64 (resamples, runs) for each method; the rows add up to 1.
    """
    random = np.random.default_rng([seed, 1])
    found = []
    for count in runs:
        drawn = random.multinomial(count, np.full(count, 1 / count), size=resamples) / count
        spread = np.sqrt(count / (count - 1)) if count > 1 else 1.0
        found.append(1 / count + spread * (drawn - 1 / count))
    return found


def _of_kind(methods: Methods, kind: str, weights: list[np.ndarray], seed: int) -> Resampled:
    runs = [run for own in methods.values() for run in own]
    ends = np.cumsum([len(own) for own in methods.values()])
    observed: dict[str, np.ndarray] = {}
    resampled: dict[str, np.ndarray] = {}
    tested = [name for metric in _COMPARED for name in metric.mean_of or (metric.name,)]
    for side in DIRECTIONS:
        found = {name: _per_query(runs, kind, f"{side}_{name}") for name in tested}
        values = {n: own for n, own in found.items() if not np.isnan(own).all()}
        flat = np.concatenate(list(values.values()), axis=1)
        means = resampled_means(
            flat, resamples=len(weights[0]), **_draws(runs[0].queries, side, seed)
        )
        parts = np.split(means, len(values), axis=1)
        for (name, own), part in zip(values.items(), parts, strict=True):
            by_method = np.split(np.nanmean(own, axis=0), ends[:-1])
            observed[f"{side}_{name}"] = np.array([mean.mean() for mean in by_method])
            several = zip(np.split(part, ends[:-1], axis=1), weights, strict=True)
            columns = [(drawn * weight).sum(axis=1) for drawn, weight in several]
            resampled[f"{side}_{name}"] = np.stack(columns)
    for whole in (observed, resampled):
        _combine(whole)
    return Resampled(kind, list(methods), observed, resampled)


def _combine(whole: dict[str, np.ndarray]) -> None:
    """Adds RSUM, and puts means of several metrics in their place."""
    whole[RSUM] = np.sum([whole[name] for name in whole if "_recall_" in name], axis=0)
    for side, metric in itertools.product(DIRECTIONS, _COMPARED):
        names = [f"{side}_{name}" for name in metric.mean_of]
        if known := [whole.pop(name) for name in names if name in whole]:
            whole[f"{side}_{metric.name}"] = np.mean(known, axis=0)


def _draws(first: Queries, side: str, seed: int) -> dict[str, Any]:
    """How `resampled_means` draws the queries of a side: captions together with their images."""
    if side == "i2t":
        return {"seed": seed}
    if first.caption_image is None:
        return {"seed": seed + 1}
    images = len(first.image_ids)
    return {"groups": first.caption_image, "num_groups": images, "seed": seed}


def _per_query(runs: Sequence[RunResult], judgements: str, metric: str) -> np.ndarray:
    """Of every run (queries, runs), float64; NaN where any run has no value."""
    first = runs[0].queries
    nothing = np.full(
        len(first.image_ids if metric.startswith("i2t") else first.caption_ids), np.nan
    )
    found = [run.queries.values[judgements].get(metric, nothing) for run in runs]
    values = np.stack(found, axis=1).astype(np.float64)
    values[np.isnan(values).any(axis=1)] = np.nan
    return values


def _common_kinds(methods: Methods) -> list[str]:
    """The kinds of judgements that all runs were measured against."""
    runs = [run.queries.values for own in methods.values() for run in own]
    return [kind for kind in runs[0] if all(kind in values for values in runs)]


def most_judged(methods: Methods) -> str:
    """The kind of judgements that knows most: the exhaustive truth, if there is one."""
    return "truth" if "truth" in _common_kinds(methods) else ANNOTATED
