"""Means and deviations over seeds, and the tables of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from keras_xmr.comparison.results import Methods, RunResult
from keras_xmr.metrics import DIRECTIONS, METRICS, RSUM, chance_from_counts, metric_title
from keras_xmr.metrics.bootstrap import Difference
from keras_xmr.metrics.names import metric_value
from keras_xmr.reporting.metric_tables import (
    CHANCE,
    CONDENSED,
    best_cell,
    judgements_title,
    metric_cells,
    reranked_title,
)
from keras_xmr.reporting.table import Table

ANNOTATED = "metrics"
"""The kind of judgements without a name: those of the data set."""

UNCERTAINTY = "uncertainty_of_truth"

COLUMNS = {
    f"{side}_{metric.name}": f"{side}\n{metric.title}"
    for side in DIRECTIONS
    for metric in METRICS.values()
    if metric.compared
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
    """

    judgements: str
    matchers: str
    reranker: str | None
    rows: dict[str, dict[str, Figure]] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)

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
            rows.append([name, *(shown_mean(metric, figures) for metric in self.columns)])
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
                cells.append(f"{100 * interval.low:.1f} to {100 * interval.high:.1f}")
            rows.append([name, runs, *cells])
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
    return f"±{deviation:.2f}" if metric == UNCERTAINTY else f"±{100 * deviation:.1f}"
