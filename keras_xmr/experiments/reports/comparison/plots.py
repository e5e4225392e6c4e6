"""Plots of a comparison: bars of metrics, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.experiments.reports.comparison.figures import (
    HEADLINES,
    UNCERTAINTY,
    Resampled,
    SummaryTable,
    kind_title,
    most_judged,
    shown_mean,
)
from keras_xmr.experiments.reports.comparison.results import Methods, RunResult
from keras_xmr.experiments.reports.metric_tables import CHANCE
from keras_xmr.experiments.reports.pages import explain
from keras_xmr.experiments.reports.pictures import (
    CHANCE_STYLE,
    Picture,
    Rows,
    both_directions,
    labelled,
    legend_below,
    panel,
)
from keras_xmr.metrics import chance_recall
from keras_xmr.metrics.bootstrap import mean_of_runs
from keras_xmr.metrics.names import in_percent

_TOP = "asp_top_"

_WHITE = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}


def comparison_pictures(
    methods: Methods, summary_tables: Sequence[SummaryTable], resampled: Mapping[str, Resampled]
) -> Iterator[Picture]:
    """All pictures for which there are figures.

    Args:
        methods: The runs of each method.
        summary_tables: Their tables.
        resampled: Their metrics over resamples, by the kind of judgements.
    """
    plain = [table for table in summary_tables if table.is_plain]
    for table in plain:
        if table.judgements != "folds":
            yield _bars(table, resampled.get(table.judgements, {}))
    yield _recall(methods)
    if _asp_tops(plain[0]):
        yield _asp(plain[0])
    if any(run.training_log for runs in methods.values() for run in runs):
        yield _validation(methods)


def _colours(names: Sequence[str]) -> dict[str, tuple]:
    colours = plt.get_cmap("tab20" if len(names) > 10 else "tab10")
    return {name: colours(number % colours.N) for number, name in enumerate(names)}


def _bars(table: SummaryTable, resampled: Resampled) -> Picture:
    """A panel per metric: a bar per method with its interval, hatched if it is of a single run."""
    titles = HEADLINES | {UNCERTAINTY: "rank correlation of sigma"}
    known = set().union(*table.rows.values())
    shown = {metric: title for metric, title in titles.items() if metric in known}
    columns = min(2, len(shown))
    size = (1.5 + 2.9 * columns, -(-len(shown) // columns) * (0.8 + 0.27 * len(table.rows)))
    drawing, axes = plt.subplots(
        -(-len(shown) // columns), columns, figsize=size, squeeze=False, sharey=True
    )
    colours = _colours(list(table.rows))
    rows: Rows = []
    for axis, (metric, title) in zip(axes.flat, shown.items(), strict=False):
        factor = 1 if metric == UNCERTAINTY else in_percent(metric, 1)
        axis.set_title(title if metric == UNCERTAINTY else f"{title} (%)", fontsize=10)
        for number, (name, figures) in enumerate(table.rows.items()):
            if (figure := figures.get(metric)) is None:
                continue
            # Without resamples, the interval is over runs alone.
            estimate = resampled.get(metric, {}).get(name) or mean_of_runs(
                np.array(figure.values), np.array([figure.values])
            )
            interval = estimate.difference()
            value, low, high = factor * np.array([figure.mean, interval.low, interval.high])
            rows.append((title, name, value, low, high))
            # A mean over few runs may be outside of their range by rounding.
            ends = [[max(value - low, 0)], [max(high - value, 0)]]
            hatch = "////" if len(figure.values) == 1 and table.runs > 1 else None
            axis.barh(number, value, xerr=ends, color=colours[name], hatch=hatch)
            # On white: the line of chance may cross it.
            text = f" {shown_mean(metric, figures)}"
            axis.text(0, number, text, va="center", fontsize=7, bbox=_WHITE)
        if metric in table.chance:
            random = factor * table.chance[metric]
            axis.axvline(random, ls=":", color="black")
            rows.append((title, CHANCE, random, random, random))
        if all(figures[metric].mean >= 0 for figures in table.rows.values() if metric in figures):
            axis.set_xlim(left=0)
        axis.set_yticks(range(len(table.rows)), list(table.rows), fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    header = ("metric", "method", "mean", "low", "high")
    name, see = f"bars-{table.judgements}", explain("compared_bars", table.runs)
    return Picture(name, f"metrics, {kind_title(table.judgements)}", see, drawing, header, rows)


def _recall(methods: Methods) -> Picture:
    """Recall at K by the most complete judgements: mean over seeds, and the range as a band."""
    judgements, colours = most_judged(methods), _colours(list(methods))
    first = next(iter(methods.values()))[0].queries
    galleries = {"i2t": len(first.caption_ids), "t2i": len(first.image_ids)}

    def curve(run: RunResult, side: str, at: np.ndarray) -> np.ndarray:
        ranks = run.queries.values[judgements][f"{side}_rank"]
        ranks = np.sort(ranks[~np.isnan(ranks)])
        return 100 * np.searchsorted(ranks, at, side="right") / max(len(ranks), 1)

    def draw(axis: plt.Axes, side: str) -> Iterator[tuple[object, ...]]:
        at = np.unique(np.geomspace(1, max(galleries[side], 1), 200).astype(int))
        for name, runs in methods.items():
            curves = np.stack([curve(run, side, at) for run in runs])
            mean, least, most = curves.mean(axis=0), curves.min(axis=0), curves.max(axis=0)
            axis.plot(at, mean, label=name, color=colours[name], lw=1.3)
            if len(runs) > 1:
                axis.fill_between(at, least, most, color=colours[name], alpha=0.15, lw=0)
            yield from labelled((side, name), at, mean, least, most)
        if (right := first.values[judgements].get(f"{side}_positives")) is not None:
            share = 100 * chance_recall(right, galleries[side], at)
            axis.plot(at, share, **CHANCE_STYLE)
            yield from labelled((side, CHANCE), at, share, share, share)

    label = f"recall at K (%), {kind_title(judgements)}"
    drawing, rows = both_directions(draw, label, xlabel="K", xscale="log")
    header = ("queries", "method", "k", "mean", "least", "most")
    return Picture("recall", "recall at K", explain("compared_recall"), drawing, header, rows)


def _asp_tops(table: SummaryTable) -> list[int]:
    names = {name for row in table.rows.values() for name in row}
    return sorted(int(n.removeprefix(f"i2t_{_TOP}")) for n in names if n.startswith(f"i2t_{_TOP}"))


def _asp(table: SummaryTable) -> Picture:
    """ASP of the first N by relevance, over N (Li et al. 2022, Fig. 3)."""
    colours = _colours(list(table.rows))

    def draw(axis: plt.Axes, side: str) -> Iterator[tuple[object, ...]]:
        for name, row in table.rows.items():
            at = [n for n in _asp_tops(table) if f"{side}_{_TOP}{n}" in row]
            values = [row[f"{side}_{_TOP}{n}"] for n in at]
            error = [100 * (figure.deviation or 0) for figure in values]
            mean = [100 * figure.mean for figure in values]
            axis.errorbar(at, mean, error, label=name, color=colours[name], marker="o", ms=3)
            yield from labelled((side, name), at, mean, error)
        if at := [n for n in _asp_tops(table) if f"{side}_{_TOP}{n}" in table.chance]:
            share = [100 * table.chance[f"{side}_{_TOP}{n}"] for n in at]
            axis.plot(at, share, **CHANCE_STYLE)
            yield from labelled((side, CHANCE), at, share, [0] * len(at))

    title = "ASP of the first N by relevance"
    drawing, rows = both_directions(draw, f"{title} (%)", xlabel="N", xscale="log")
    header = ("queries", "method", "n", "mean", "deviation")
    return Picture("asp", title, explain("compared_asp"), drawing, header, rows)


def _validation(methods: Methods) -> Picture:
    """RSUM on the validation split during training: a line per run."""
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
