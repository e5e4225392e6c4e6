"""Tables of methods, with means and deviations over their runs: filters of a long table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.experiments.reports.metric_tables import (
    best_cell,
    judgements_title,
    reranked_title,
)
from keras_xmr.metrics import METRICS, RSUM, metric_title
from keras_xmr.metrics.names import in_percent, shown_value
from keras_xmr.metrics.results import (
    ALL,
    ANNOTATED,
    CHANCE,
    FOLDS,
    Result,
    Results,
)
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name
from keras_xmr.utils.tables import Table

UNCERTAINTY = "t2i_uncertainty_of_truth"

COLUMNS = {
    full_name(direction, metric.name): f"{SHORT[direction]}\n{metric.title}"
    for direction in DIRECTIONS
    for metric in METRICS.values()
    if metric.compared
} | {RSUM: metric_title(RSUM), UNCERTAINTY: "rank corr.\nof sigma"}
"""The metrics of the tables, and their titles."""

HEADLINES = {RSUM: metric_title(RSUM)} | {
    full_name(direction, metric.name): f"{SHORT[direction]} {metric.title}"
    for metric in METRICS.values()
    if metric.compared == "headline"
    for direction in DIRECTIONS
}
"""The metrics with differences on the page; the others are in the CSV file."""


ALPHA = 0.05


def is_significant(difference: Result) -> bool:
    """Returns whether a difference is significant after the correction."""
    return difference.p_holm < ALPHA


def most_judged(judgements: Sequence[str]) -> str:
    """Returns the most complete judgements: the exhaustive truth, if there is one."""
    return "truth" if "truth" in judgements else ANNOTATED


def mean_of(rows: Sequence[Result]) -> float:
    """Returns the mean over runs."""
    return float(np.mean([row.value for row in rows]))


def deviation_of(rows: Sequence[Result]) -> float | None:
    """Returns the sample standard deviation over runs; None of a single run."""
    return float(np.std([row.value for row in rows], ddof=1)) if len(rows) > 1 else None


@dataclass(frozen=True)
class MethodsTable:
    """Comparable figures of methods: one kind of judgements, one re-ranker.

    Attributes:
        results: The figures of each run, without chance.
        by_chance: The figures of a random ranking; empty if they are not known.
        titles: The title of each method, with its fidelity.
        is_own: Whether every method is scored with the matcher of its training.
    """

    results: Results
    by_chance: Results
    titles: dict[str, str]
    is_own: bool

    @property
    def judgements(self) -> str:
        """The kind of judgements."""
        judgements: str = self.results[0].judgements
        return judgements

    @property
    def is_plain(self) -> bool:
        """True if every method is scored with the matcher of its training, without re-ranking."""
        return self.is_own and not self.results[0].reranker

    @property
    def is_over_folds(self) -> bool:
        """True for means over folds."""
        return self.results[0].queries == FOLDS

    @property
    def subject(self) -> str:
        """The judgements, and whether figures are means over folds."""
        title = judgements_title(self.judgements, self.results)
        return f"{FOLDS}, {title}" if self.is_over_folds else title

    def title(self, split: str) -> str:
        """Returns the title of the table."""
        title = f"{split}, {self.subject}"
        if not self.is_own:
            title += ", other matchers than in training"
        reranker = self.results[0].reranker
        return reranked_title(title, reranker) if reranker else title

    @property
    def rows(self) -> dict[str, dict[str, list[Result]]]:
        """The figures of all runs by metric, by the label of the row."""
        rows: dict[str, dict[str, list[Result]]] = {}
        for result in self.results:
            label = result.method if self.is_own else f"{result.method}, {result.matcher}"
            rows.setdefault(label, {}).setdefault(result.name, []).append(result)
        return rows

    @property
    def columns(self) -> dict[str, str]:
        """The metrics that any row has, and their titles."""
        known = {row.name for row in self.results}
        return {name: title for name, title in COLUMNS.items() if name in known}

    @property
    def chance(self) -> dict[str, Result]:
        """The figures of a random ranking by metric."""
        return {row.name: row for row in self.by_chance}

    @property
    def runs(self) -> int:
        """The largest number of runs behind a figure."""
        return max(len(runs) for cells in self.rows.values() for runs in cells.values())

    def table(self, split: str) -> Table:
        """Returns the table for a terminal, with deviations in separate lines."""
        body = []
        for label, cells in self.rows.items():
            found = [cells.get(metric, []) for metric in self.columns]
            body.append([self._titled(label), *map(shown_mean, found)])
            if self.runs > 1:
                body.append(["", *map(_spread, found)])
        return Table(
            self.title(split), ["method", *self.columns.values()], body + self._chance_row([])
        )

    def wide_table(self, split: str, means: Results) -> Table:
        """Returns the table for a page: mean and deviation in one cell, the interval of RSUM.

        Args:
            split: The split.
            means: The means of the methods with their intervals.
        """
        known = means.select(metric=RSUM, judgements=self.judgements, minus="")
        intervals = {row.method: f"{row.low:.1f} to {row.high:.1f}" for row in known}
        if not self.is_plain or self.is_over_folds:
            intervals = {}
        header = ["method", "runs", *self.columns.values()]
        header += ["RSUM,\n95 % interval"] if intervals else []
        body = []
        for label, cells in self.rows.items():
            runs = str(max(map(len, cells.values())))
            found = [cells.get(metric, []) for metric in self.columns]
            interval = [intervals[label]] if intervals else []
            body.append([self._titled(label), runs, *map(_with_spread, found), *interval])
        chance = [[*row, ""] if intervals else row for row in self._chance_row([""])]
        best = {place: self._best(metric) for place, metric in enumerate(self.columns, 2)}
        return Table(self.title(split), header, [*body, *chance], best)

    def _titled(self, label: str) -> str:
        method, separator, matcher = label.partition(", ")
        return f"{self.titles.get(method, method)}{separator}{matcher}"

    def _chance_row(self, second: list[str]) -> list[list[str]]:
        cells = [shown_mean([c] if (c := self.chance.get(m)) else []) for m in self.columns]
        return [[CHANCE, *second, *cells]] if self.chance else []

    def _best(self, metric: str) -> str | None:
        """Returns the best cell of a column; None if all methods are equal there."""
        known = [cells[metric] for cells in self.rows.values() if metric in cells]
        best = best_cell(known[0][0].unit, list(map(mean_of, known)))
        if metric == UNCERTAINTY or best is None:
            return None
        return next(_with_spread(runs) for runs in known if shown_mean(runs) == best)


def methods_tables(
    results: Results, own: dict[str, str], titles: dict[str, str]
) -> list[MethodsTable]:
    """Returns all tables of a split, tables without re-ranking first.

    Each re-ranker has separate tables, since re-ranked figures are not comparable with plain ones.

    Args:
        results: The results of all runs, by method and seed, and of chance.
        own: The matcher of the training of each method.
        titles: The title of each method.
    """
    shown = results.select(queries=[ALL, FOLDS], minus="")
    by_chance = shown.select(method=CHANCE)
    groups: dict[tuple[str, bool, str, str], list[Result]] = {}
    for row in shown:
        if row.method not in own or not row.judgements:
            continue
        is_own = bool(row.reranker) or row.matcher == own[row.method]
        key = (row.reranker, not is_own, row.judgements, row.queries)
        groups.setdefault(key, []).append(row)
    for row in shown:
        # By the truth alone; it is no figure of re-ranked scores.
        key = ("", False, "truth", ALL)
        if row.name == UNCERTAINTY and key in groups:
            groups[key].append(row._replace(judgements="truth"))
    return [
        MethodsTable(
            Results(rows),
            by_chance.select(judgements=judgements, queries=queries),
            titles,
            not is_further,
        )
        for (_, is_further, judgements, queries), rows in sorted(
            groups.items(), key=lambda item: item[0][:2]
        )
    ]


def relevance_tables(
    results: Results, own: dict[str, str], titles: dict[str, str], split: str
) -> list[Table]:
    """Returns R-Precision by the number of relevant items of a query, per kind of judgements.

    Annotated pairs say little about queries with many relevant items. Judgements by which all
    queries have similarly many have no table.

    Args:
        results: The results of all runs, by method and seed, and of chance.
        own: The matcher of the training of each method.
        titles: The title of each method.
        split: The split.
    """
    known = [
        row
        for row in results.select(metric="r_precision", reranker="", minus="")
        if row.queries not in (ALL, FOLDS) and row.matcher == own.get(row.method)
    ]
    tables = []
    for judgements in dict.fromkeys(row.judgements for row in known):
        cells: dict[str, dict[tuple[str, str], list[Result]]] = {}
        for row in known:
            if row.judgements == judgements:
                column = (row.direction, row.queries)
                cells.setdefault(row.method, {}).setdefault(column, []).append(row)
        columns = sorted({c for of_method in cells.values() for c in of_method}, key=_by_number)
        if len(columns) <= len({direction for direction, _ in columns}):
            continue
        header = [f"{SHORT[d]}\nR = {queries}" for d, queries in columns]
        counts = [str(next(c[x][0].n for c in cells.values() if x in c)) for x in columns]
        body = [
            [titles.get(name, name), *map(_with_spread, (of.get(x, []) for x in columns))]
            for name, of in cells.items()
        ]
        title = f"{split}, {judgements_title(judgements)}: R-Precision by number of relevant items"
        tables.append(Table(title, ["method", *header], [*body, ["queries", *counts]]))
    return tables


def _by_number(column: tuple[str, str]) -> tuple[str, int]:
    direction, queries = column
    return direction, int(queries.split()[0])


def shown_mean(runs: Sequence[Result]) -> str:
    """Formats a mean as tables show it; correlations are not in percent."""
    return shown_value(runs[0].unit, mean_of(runs)) if runs else "-"


def _with_spread(runs: Sequence[Result]) -> str:
    return f"{shown_mean(runs)} {_spread(runs)}".rstrip()


def _spread(runs: Sequence[Result]) -> str:
    deviation = deviation_of(runs)
    if deviation is None:
        return ""
    digits = 2 if runs[0].unit == "correlation" else 1
    return f"±{in_percent(runs[0].unit, deviation):.{digits}f}"
