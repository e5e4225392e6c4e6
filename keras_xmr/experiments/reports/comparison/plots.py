"""Plots of a comparison: bars of metrics, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from keras_xmr.experiments.reports.comparison.method_tables import (
    HEADLINES,
    UNCERTAINTY,
    MethodsTable,
    deviation_of,
    is_significant,
    mean_of,
    shown_mean,
)
from keras_xmr.experiments.reports.comparison.run_results import Methods, RunResult
from keras_xmr.experiments.reports.metric_tables import judgements_title
from keras_xmr.experiments.reports.pages import explain
from keras_xmr.experiments.reports.pictures import (
    CHANCE_STYLE,
    Picture,
    Rows,
    both_directions,
    labelled,
    legend_below,
    panel,
    panels,
)
from keras_xmr.metrics import RSUM, chance_recall
from keras_xmr.metrics.bootstrap import mean_of_runs
from keras_xmr.metrics.names import in_percent
from keras_xmr.metrics.results import CHANCE, Result, Results
from keras_xmr.utils.directions import DIRECTIONS, full_name

_TOP = "asp_top_"

_WHITE = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}


def comparison_pictures(
    methods: Methods, tables: Sequence[MethodsTable], compared: Results, judgements: str
) -> Iterator[Picture]:
    """Yields all pictures for which there are figures, the differences first.

    Args:
        methods: The runs of each method.
        tables: The tables.
        compared: The means of the methods, and their differences.
        judgements: The most complete judgements.
    """
    if len(methods) > 1:
        yield _forest(compared.select(judgements=judgements))
    plain = [table for table in tables if table.is_plain]
    for table in plain:
        if not table.is_over_folds:
            yield _bars(table, compared.select(judgements=table.judgements, minus=""))
    yield _recall(methods, judgements)
    if _asp_tops(plain[0]):
        yield _asp(plain[0])
    if any(run.training_log for runs in methods.values() for run in runs):
        yield _validation(methods)


def _colours(names: Sequence[str]) -> dict[str, tuple[float, ...]]:
    colours = colormaps["tab20" if len(names) > 10 else "tab10"]
    return {name: colours(number % colours.N) for number, name in enumerate(names)}


_MOST_PAIRS = 28
"""Pairs of methods in the picture of differences: all pairs of eight methods."""


def _forest(compared: Results) -> Picture:
    """Returns the differences in RSUM with their intervals: filled where they are significant."""
    differences = [row for row in compared.select(metric=RSUM) if row.minus]
    shown = sorted(differences, key=lambda row: row.value)[-_MOST_PAIRS:]
    size = (7.5, 1.2 + 0.3 * len(shown))
    drawing, axis = panel("", "difference in RSUM", "", size=size)
    axis.axvline(0, color="0.4", lw=1)
    rows: Rows = []
    for place, row in enumerate(shown):
        ends = [[max(row.value - row.low, 0)], [max(row.high - row.value, 0)]]
        fill = "tab:blue" if is_significant(row) else "white"
        style = {"marker": "o", "color": "tab:blue", "mfc": fill, "capsize": 3}
        axis.errorbar(row.value, place, xerr=ends, **style)
        rows.append((row.method, row.minus, row.value, row.low, row.high, row.p_holm))
    labels = [f"{row.method} minus {row.minus}" for row in shown]
    axis.set_yticks(range(len(shown)), labels, fontsize=8)
    header = ("method", "minus", "difference", "low", "high", "p_holm")
    hidden = len(differences) - len(shown)
    see = explain("compared_forest", hidden)
    return Picture("differences", "differences in RSUM", see, drawing, header, rows)


def _bars(table: MethodsTable, means: Results) -> Picture:
    """Returns a panel per metric: a bar per method with its interval, hatched if it is of a
    single run.

    A metric that is the same for all methods has none.
    """
    titles = HEADLINES | {UNCERTAINTY: "rank correlation of sigma"}
    cells, intervals = table.rows, {(row.method, row.name): row for row in means}
    shown = {
        metric: title for metric, title in titles.items() if _tells(list(cells.values()), metric)
    }
    columns = min(2, len(shown))
    size = (1.5 + 2.9 * columns, -(-len(shown) // columns) * (0.8 + 0.27 * len(cells)))
    drawing, axes = panels(
        -(-len(shown) // columns), columns, size=size, squeeze=False, sharey=True
    )
    colours = _colours(list(cells))
    rows: Rows = []
    for axis, (metric, title) in zip(axes.flat, shown.items(), strict=False):
        known = {name: row[metric] for name, row in cells.items() if metric in row}
        unit = next(iter(known.values()))[0].unit
        axis.set_title(title if unit == "correlation" else f"{title} (%)", fontsize=10)
        for number, name in enumerate(cells):
            if (runs := known.get(name)) is None:
                continue
            ends = (mean_of(runs), *_interval(runs, intervals.get((name, metric))))
            value, low, high = (in_percent(unit, end) for end in ends)
            rows.append((title, name, value, low, high))
            # A mean over few runs may be outside of their range by rounding.
            error = [[max(value - low, 0)], [max(high - value, 0)]]
            hatch = "////" if len(runs) == 1 and table.runs > 1 else None
            axis.barh(number, value, xerr=error, color=colours[name], hatch=hatch)
            # On white: the line of chance may cross it.
            text = f" {shown_mean(runs)}"
            axis.text(0, number, text, va="center", fontsize=7, bbox=_WHITE)
        if metric in table.chance:
            random = in_percent(unit, table.chance[metric].value)
            axis.axvline(random, ls=":", color="black")
            rows.append((title, CHANCE, random, random, random))
        if all(mean_of(runs) >= 0 for runs in known.values()):
            axis.set_xlim(left=0)
        axis.set_yticks(range(len(cells)), list(cells), fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    header = ("metric", "method", "mean", "low", "high")
    name, see = f"bars-{table.judgements}", explain("compared_bars", table.runs)
    return Picture(name, f"metrics, {table.subject}", see, drawing, header, rows)


def _tells(cells: Sequence[Mapping[str, Sequence[Result]]], metric: str) -> bool:
    """Returns whether a panel of a metric shows something: it is known, and RSUM or not always
    the same.
    """
    known = {shown_mean(row[metric]) for row in cells if metric in row}
    return bool(known) and (metric == RSUM or len(known) > 1 or len(cells) == 1)


def _interval(runs: Sequence[Result], mean: Result | None) -> tuple[float, float]:
    """Returns the ends of the interval of a mean; over the runs alone where there are no
    resamples.
    """
    if mean is not None:
        return mean.low, mean.high
    values = np.array([row.value for row in runs])
    interval = mean_of_runs(values, values[None]).difference()
    return interval.low, interval.high


def _recall(methods: Methods, judgements: str) -> Picture:
    """Computes recall at K by some judgements: mean over seeds, and the range as a band."""
    colours = _colours(list(methods))
    first = next(iter(methods.values()))[0].queries
    galleries = dict(zip(DIRECTIONS, (len(first.caption_ids), len(first.image_ids)), strict=True))

    def curve(run: RunResult, direction: str, at: np.ndarray) -> np.ndarray:
        ranks = run.queries.values[judgements][full_name(direction, "rank")]
        ranks = np.sort(ranks[~np.isnan(ranks)])
        return 100 * np.searchsorted(ranks, at, side="right") / max(len(ranks), 1)

    def draw(axis: Axes, direction: str) -> Iterator[tuple[object, ...]]:
        at = np.unique(np.geomspace(1, max(galleries[direction], 1), 200).astype(int))
        for name, runs in methods.items():
            curves = np.stack([curve(run, direction, at) for run in runs])
            mean, least, most = curves.mean(axis=0), curves.min(axis=0), curves.max(axis=0)
            axis.plot(at, mean, label=name, color=colours[name], lw=1.3)
            if len(runs) > 1:
                axis.fill_between(at, least, most, color=colours[name], alpha=0.15, lw=0)
            yield from labelled((direction, name), at, mean, least, most)
        if (right := first.values[judgements].get(full_name(direction, "positives"))) is not None:
            share = 100 * chance_recall(right, galleries[direction], at)
            axis.plot(at, share, **CHANCE_STYLE)
            yield from labelled((direction, CHANCE), at, share, share, share)

    label = f"recall at K (%), {judgements_title(judgements)}"
    drawing, rows = both_directions(draw, label, xlabel="K", xscale="log")
    header = ("queries", "method", "k", "mean", "least", "most")
    return Picture("recall", "recall at K", explain("compared_recall"), drawing, header, rows)


def _asp_tops(table: MethodsTable) -> list[int]:
    names = {row.metric for row in table.results}
    return sorted(int(name.removeprefix(_TOP)) for name in names if name.startswith(_TOP))


def _asp(table: MethodsTable) -> Picture:
    """Computes ASP of the first N by relevance, over N (Li et al. 2022, Fig. 3)."""
    cells = table.rows
    colours = _colours(list(cells))

    def draw(axis: Axes, direction: str) -> Iterator[tuple[object, ...]]:
        for name, row in cells.items():
            at = [n for n in _asp_tops(table) if full_name(direction, f"{_TOP}{n}") in row]
            values = [row[full_name(direction, f"{_TOP}{n}")] for n in at]
            error = [100 * (deviation_of(runs) or 0) for runs in values]
            mean = [100 * mean_of(runs) for runs in values]
            axis.errorbar(at, mean, error, label=name, color=colours[name], marker="o", ms=3)
            yield from labelled((direction, name), at, mean, error)
        if at := [
            n for n in _asp_tops(table) if full_name(direction, f"{_TOP}{n}") in table.chance
        ]:
            share = [100 * table.chance[full_name(direction, f"{_TOP}{n}")].value for n in at]
            axis.plot(at, share, **CHANCE_STYLE)
            yield from labelled((direction, CHANCE), at, share, [0] * len(at))

    title = "ASP of the first N by relevance"
    drawing, rows = both_directions(draw, f"{title} (%)", xlabel="N", xscale="log")
    header = ("queries", "method", "n", "mean", "deviation")
    return Picture("asp", title, explain("compared_asp"), drawing, header, rows)


def _validation(methods: Methods) -> Picture:
    """Returns RSUM on the validation split during training: a line per run."""
    rows: Rows = []
    drawing, axis = panel("", "step", "validation RSUM (%)", size=(5.4, 4.2))
    colours = _colours(list(methods))
    for name, runs in methods.items():
        logs = [run.training_log for run in runs if run.training_log]
        for number, log in enumerate(logs):
            label = name if number == 0 else None
            steps, rsum = log["step"].astype(int), log["val_rsum"]
            axis.plot(steps, rsum, color=colours[name], lw=1.1, marker=".", label=label)
            rows += labelled((name, number), steps, rsum)
    legend_below(axis)
    header, see = ("method", "run", "step", "rsum"), explain("validation")
    return Picture("validation", "validation", see, drawing, header, rows)
