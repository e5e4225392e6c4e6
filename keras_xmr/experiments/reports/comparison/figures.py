"""Figures of methods: means and deviations over seeds with their tables, and tests of differences.

Differences are over resamples of queries and runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_xmr.experiments.reports.metric_tables import (
    CHANCE,
    CONDENSED,
    best_cell,
    judgements_title,
    metric_cells,
    reranked_title,
)
from keras_xmr.experiments.reports.table import Table
from keras_xmr.metrics import DIRECTIONS, METRICS, RSUM, chance_from_counts, metric_title
from keras_xmr.metrics.bootstrap import (
    RESAMPLES,
    Difference,
    Estimate,
    holm,
    mean_of_runs,
    resampled_means,
)
from keras_xmr.metrics.names import in_percent, metric_value
from keras_xmr.metrics.ranking import RECALL_AT

if TYPE_CHECKING:  # Reading runs needs YAML, which the metrics alone do not install.
    from keras_xmr.experiments.reports.comparison.results import Methods, RunResult

ANNOTATED = "metrics"
"""The kind of judgements without a name: those of the data set."""

UNCERTAINTY = "uncertainty_of_truth"

_COMPARED = [metric for metric in METRICS.values() if metric.compared]

COLUMNS = {
    f"{side}_{metric.name}": f"{side}\n{metric.title}"
    for side in DIRECTIONS
    for metric in _COMPARED
} | {RSUM: metric_title(RSUM), UNCERTAINTY: "rank corr.\nof sigma"}
"""The metrics of the tables, and their titles."""


def kind_title(judgements: str) -> str:
    """The title of a kind of judgements."""
    titles = {ANNOTATED: "annotated pairs", "folds": "mean over folds, annotated pairs"}
    return titles.get(judgements) or judgements_title(judgements)


@dataclass(frozen=True)
class Figure:
    """A metric of a method.

    Attributes:
        values: Its value in each run: a fraction, a count, or a correlation.
    """

    values: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over runs; None of a single run."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@dataclass
class SummaryTable:
    """A table of comparable figures.

    Attributes:
        judgements: The kind of judgements.
        matchers: "own" if every method is scored with the matcher of its training,
            "further" for others.
        reranker: The re-ranker; None without one.
        rows: The figures of each row, by metric.
        chance: The metrics of a random ranking; empty if they are not known.
        titles: The title of each row, with the fidelity of the method.
    """

    judgements: str
    matchers: str
    reranker: str | None
    rows: dict[str, dict[str, Figure]] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """True if every method is scored with the matcher of its training, without re-ranking."""
        return self.matchers == "own" and not self.reranker

    def title(self, split: str) -> str:
        """The title of the table."""
        title = f"{split}, {kind_title(self.judgements)}"
        if f"{DIRECTIONS[0]}_bpref" in self.columns:
            title += f", {CONDENSED}"
        if self.matchers == "further":
            title += ", other matchers than that of the training"
        return title if self.reranker is None else reranked_title(title, self.reranker)

    @property
    def columns(self) -> dict[str, str]:
        """The metrics that any row has, and their titles."""
        known = set().union(*self.rows.values())
        return {name: title for name, title in COLUMNS.items() if name in known}

    @property
    def runs(self) -> int:
        """The largest number of runs behind a figure."""
        return max(len(f.values) for figures in self.rows.values() for f in figures.values())

    def table(self, title: str) -> Table:
        """The table for a terminal, with deviations in separate lines."""
        rows = []
        for name, figures in self.rows.items():
            rows.append(
                [self.titles[name], *(shown_mean(metric, figures) for metric in self.columns)]
            )
            if self.runs > 1:
                rows.append(["", *(_spread(metric, figures) for metric in self.columns)])
        rows += self._chance_row([])
        return Table(title, ["method", *self.columns.values()], rows)

    def wide_table(self, title: str, intervals: Mapping[str, Difference] | None = None) -> Table:
        """The table for a page: mean and deviation in one cell, and the intervals of RSUM.

        Args:
            title: Its title.
            intervals: Those of RSUM by row, or None.
        """
        header = ["method", "runs", *self.columns.values()]
        header += ["RSUM,\n95 % interval"] if intervals else []
        rows = []
        for name, figures in self.rows.items():
            runs = str(max(len(figure.values) for figure in figures.values()))
            cells = [_with_spread(metric, figures) for metric in self.columns]
            if intervals:
                interval = intervals[name]
                cells.append(f"{interval.low:.1f} to {interval.high:.1f}")
            rows.append([self.titles[name], runs, *cells])
        chance = [[*row, ""] if intervals else row for row in self._chance_row([""])]
        best = {place: self._best(metric) for place, metric in enumerate(self.columns, 2)}
        return Table(title, header, [*rows, *chance], best)

    def _chance_row(self, second: list[str]) -> list[list[str]]:
        return [[CHANCE, *second, *metric_cells(self.chance, self.columns)]] if self.chance else []

    def _best(self, metric: str) -> str | None:
        """The best cell of a column; None if all methods are equal there."""
        known = [figures for figures in self.rows.values() if metric in figures]
        best = best_cell(metric, [figures[metric].mean for figures in known])
        if metric == UNCERTAINTY or best is None:
            return None
        return next(_with_spread(metric, f) for f in known if shown_mean(metric, f) == best)


def summary_tables(methods: Methods) -> list[SummaryTable]:
    """All tables of a split.

    Every kind of judgements has its table, and so has every re-ranker: its transductive figures are
    not comparable with plain ones.

    Args:
        methods: The runs of each method.

    Returns:
        First the matchers that models were trained with, then others, then re-rankers.
    """
    tables: dict[tuple[str, str, str | None], SummaryTable] = {}
    for method, runs in methods.items():
        for matcher, reranker, judgements, metrics in (each for run in runs for each in _read(run)):
            kind = "own" if matcher == runs[0].matcher else "further"
            key = (judgements, "own" if reranker else kind, reranker)
            if key not in tables:
                tables[key] = SummaryTable(*key, chance=_chance(runs[0], judgements))
            label = method if kind == "own" else f"{method}, {matcher}"
            tables[key].titles[label] = label.replace(method, runs[0].title, 1)
            figures = tables[key].rows.setdefault(label, {})
            for metric, value in metrics.items():
                figures.setdefault(metric, Figure()).values.append(value)
    return sorted(tables.values(), key=lambda b: (b.reranker or "", b.matchers == "further"))


def _read(run: RunResult) -> Iterator[tuple[str, str | None, str, Mapping[str, float]]]:
    """Yields matchers, re-rankers (or None), kinds of judgements, and the metrics by them."""
    for name, measured in (run.figures["matchers"] | run.figures["reranked"]).items():
        matcher, _, reranker = name.partition(" + ")
        # No name of a file of judgements is "metrics" or "folds".
        of_data_set = {kind: measured[kind] for kind in (ANNOTATED, "folds") if kind in measured}
        for kind, metrics in (of_data_set | measured.get("judgements", {})).items():
            correlation = run.figures.get(UNCERTAINTY)
            if correlation is not None and (name, kind) == (run.matcher, "truth"):
                metrics = metrics | {UNCERTAINTY: correlation}
            yield matcher, reranker or None, kind, metrics


def _chance(run: RunResult, judgements: str) -> dict[str, float]:
    """The metrics of a random ranking of the queries of a run; empty for older runs."""
    known = run.queries.values.get(judgements, {})
    images, captions = (known.get(f"{side}_positives") for side in DIRECTIONS)
    if images is None or captions is None:
        return {}
    further = [
        {metric: known[name] for metric in METRICS if (name := f"{side}_{metric}_chance") in known}
        for side in DIRECTIONS
    ]
    judged = [known.get(f"{side}_judged") for side in DIRECTIONS]
    return chance_from_counts(images, captions, further, judged)


def shown_mean(metric: str, figures: Mapping[str, Figure]) -> str:
    """A mean as tables show it; correlations are not in percent."""
    mean = figures[metric].mean if metric in figures else None
    if metric == UNCERTAINTY and mean is not None:
        return f"{mean:+.2f}"
    return metric_value(metric, mean)


def _with_spread(metric: str, figures: Mapping[str, Figure]) -> str:
    return f"{shown_mean(metric, figures)} {_spread(metric, figures)}".rstrip()


def _spread(metric: str, figures: Mapping[str, Figure]) -> str:
    deviation = figures[metric].deviation if metric in figures else None
    if deviation is None:
        return ""
    if metric == UNCERTAINTY:
        return f"±{deviation:.2f}"
    return f"±{in_percent(metric, deviation):.1f}"


HEADLINES = {RSUM: metric_title(RSUM)} | {
    f"{side}_{metric.name}": f"{side} {metric.title}"
    for metric in _COMPARED
    if metric.compared == "headline"
    for side in DIRECTIONS
}
"""The metrics with differences on the page; the others are in the CSV file."""

ALPHA = 0.05


Resampled = dict[str, dict[str, Estimate]]
"""By metric and method, an estimate over the runs and over resamples of the queries."""


def resample(methods: Methods) -> dict[str, Resampled]:
    """Resamples the queries for each kind of judgements.

    Images are resampled, and their captions with them, so both directions and RSUM come from the
    same resamples. (If the images of captions are not known, captions are resampled
    independently.) For a method with several runs, the variance over seeds is included (see
    `Estimate`); for a single run, the estimates are about that run alone.

    Args:
        methods: The runs of each method.
    """
    runs = [run for of_method in methods.values() for run in of_method]
    sizes = [len(of_method) for of_method in methods.values()]
    tested = [name for metric in _COMPARED for name in metric.mean_of or (metric.name,)]
    queries, resamples = runs[0].queries, required_resamples(len(methods))
    owner, images = queries.caption_image, len(queries.image_ids)
    resampled = {}
    for kind in _common_kinds(methods):
        per_query = {
            side: {name: _per_query(runs, kind, f"{side}_{name}") for name in tested}
            for side in DIRECTIONS
        }
        estimates = estimate_means(per_query, sizes, owner, images, resamples, seed=0)
        resampled[kind] = {
            metric: dict(zip(methods, of_metric, strict=True))
            for metric, of_metric in estimates.items()
        }
    return resampled


def required_resamples(methods: int) -> int:
    """Number of resamples for significant differences between the given number of methods.

    Holm multiplies the smallest p-value, 2 / (resamples + 1), by the number of pairs.
    """
    return max(RESAMPLES, 100 * methods * (methods - 1) // 2)


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


def compare_pairs(resampled: Mapping[str, Resampled]) -> list[Pair]:
    """Tests all pairs of methods by paired bootstrap, in all metrics against all judgements.

    Args:
        resampled: The metrics of the methods over resamples, per kind of judgements.
    """
    pairs = []
    for judgements, metrics in resampled.items():
        for metric, estimates in metrics.items():
            names = list(itertools.combinations(estimates, 2))
            minus = [estimates[left] - estimates[right] for left, right in names]
            for (left, right), test in zip(names, compare_estimates(minus), strict=True):
                pairs.append(Pair(judgements, metric, left, right, *test))
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
    recalls = [f"{side}_recall_{k}" for side in DIRECTIONS for k in RECALL_AT]
    if set(recalls) <= whole.keys():
        whole[RSUM] = 100 * np.sum([whole[name] for name in recalls], axis=0)
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
