"""Plots of a comparison: bars of metrics, and curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.comparison.pairs import HEADLINES, most_judged
from keras_xmr.comparison.results import Methods, RunResult
from keras_xmr.comparison.summary_tables import UNCERTAINTY, SummaryTable, kind_title, shown_mean
from keras_xmr.reporting.plots import save_plot

_DIRECTIONS = {"i2t": "image-to-text", "t2i": "text-to-image"}
_TOP = "asp_top_"


def write_plots(
    methods: Methods, summary_tables: Sequence[SummaryTable], folder: Path
) -> dict[str, Path]:
    """Writes every plot that there are figures for.

    Args:
        methods: The runs of each method.
        summary_tables: Their tables.
        folder: Where the PNG files go.

    Returns:
        The files, by what they show.
    """
    plain = [b for b in summary_tables if b.matchers == "own" and not b.reranker]
    plots = {
        f"metrics, {kind_title(table.judgements)}": _bars(
            table, folder / f"bars-{table.judgements}.png"
        )
        for table in plain
        if table.judgements != "folds"
    }
    plots["recall at K"] = _recall(methods, folder / "recall.png")
    if _asp_tops(plain[0]):
        plots["ASP of the first N by relevance"] = _asp(plain[0], folder / "asp.png")
    if any(run.training_log for runs in methods.values() for run in runs):
        plots["validation"] = _validation(methods, folder / "validation.png")
    return plots


def _colours(names: Sequence[str]) -> dict[str, tuple]:
    colours = plt.get_cmap("tab20" if len(names) > 10 else "tab10")
    return {name: colours(number % colours.N) for number, name in enumerate(names)}


def _bars(table: SummaryTable, path: Path) -> Path:
    """A bar for each method, with the deviation over seeds, in a panel for each metric."""
    labels = HEADLINES | {UNCERTAINTY: "rank correlation of sigma"}
    metrics = [name for name in labels if any(name in row for row in table.rows.values())]
    columns = min(2, len(metrics))
    rows = -(-len(metrics) // columns)
    names = list(table.rows)
    colours = _colours(names)
    size = (1.5 + 2.9 * columns, rows * (0.8 + 0.27 * len(names)))
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharey=True)
    for axis, metric in zip(axes.flat, metrics, strict=False):
        factor = 1 if metric == UNCERTAINTY else 100
        for number, name in enumerate(names):
            if found := table.rows[name].get(metric):
                error = factor * (found.deviation or 0)
                axis.barh(number, factor * found.mean, xerr=error, color=colours[name])
                axis.text(
                    0, number, f" {shown_mean(metric, table.rows[name])}", va="center", fontsize=7
                )
        axis.set_title(labels[metric], fontsize=10)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    for axis in axes.flat[len(metrics) :]:
        axis.axis("off")
    return save_plot(figure, path)


def _curves(draw: Callable[[plt.Axes, str], None], label: str, path: Path) -> Path:
    """Two panels, one for each direction and below the other, with one legend below both."""
    figure, axes = plt.subplots(2, 1, figsize=(5.4, 7), sharey=True)
    for axis, (side, title) in zip(axes, _DIRECTIONS.items(), strict=True):
        draw(axis, side)
        axis.set(title=title, xscale="log")
        axis.grid(alpha=0.3)
        axis.set_ylabel(label, fontsize=8)
    _legend_below(axes[1])
    return save_plot(figure, path)


def _legend_below(axis: plt.Axes) -> None:
    axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.24))


def _recall(methods: Methods, path: Path) -> Path:
    """Recall at K against what is most judged: mean over seeds, and a band from least to most."""
    judgements, colours = most_judged(methods), _colours(list(methods))

    def curve(run: RunResult, side: str, at: np.ndarray) -> np.ndarray:
        ranks = run.queries.values[judgements][f"{side}_rank"]
        ranks = np.sort(ranks[~np.isnan(ranks)])
        return 100 * np.searchsorted(ranks, at, side="right") / max(len(ranks), 1)

    def draw(axis: plt.Axes, side: str) -> None:
        first = next(iter(methods.values()))[0].queries
        gallery = len(first.caption_ids if side == "i2t" else first.image_ids)
        at = np.unique(np.geomspace(1, max(gallery, 1), 200).astype(int))
        for name, runs in methods.items():
            found = np.stack([curve(run, side, at) for run in runs])
            _line(axis, at, found, name, colours[name])
        axis.set_xlabel("K")

    return _curves(draw, f"recall at K (%), {kind_title(judgements)}", path)


def _line(axis: plt.Axes, x: np.ndarray, values: np.ndarray, name: str, colour: tuple) -> None:
    axis.plot(x, values.mean(axis=0), label=name, color=colour, lw=1.3)
    if len(values) > 1:
        axis.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)


def _asp_tops(table: SummaryTable) -> list[int]:
    names = {name for row in table.rows.values() for name in row}
    return sorted(int(n.removeprefix(f"i2t_{_TOP}")) for n in names if n.startswith(f"i2t_{_TOP}"))


def _asp(table: SummaryTable, path: Path) -> Path:
    """ASP of the first N by relevance, over N (Li et al. 2022, Fig. 3)."""
    colours = _colours(list(table.rows))

    def draw(axis: plt.Axes, side: str) -> None:
        for name, row in table.rows.items():
            at = [n for n in _asp_tops(table) if f"{side}_{_TOP}{n}" in row]
            values = [row[f"{side}_{_TOP}{n}"] for n in at]
            error = [100 * (figure.deviation or 0) for figure in values]
            mean = [100 * figure.mean for figure in values]
            axis.errorbar(at, mean, error, label=name, color=colours[name], marker="o", ms=3)
        axis.set_xlabel("N")

    return _curves(draw, "ASP of the first N by relevance (%)", path)


def _validation(methods: Methods, path: Path) -> Path:
    """RSUM on the validation split over the training: a line for each run."""
    figure, axis = plt.subplots(figsize=(5.4, 4.2))
    colours = _colours(list(methods))
    for name, runs in methods.items():
        logs = [run.training_log for run in runs if run.training_log]
        for number, log in enumerate(logs):
            label = name if number == 0 else None
            axis.plot(log["step"], 100 * log["val_rsum"], color=colours[name], lw=1.1, label=label)
    axis.set(xlabel="step", ylabel="validation RSUM (%)")
    axis.grid(alpha=0.3)
    _legend_below(axis)
    return save_plot(figure, path)
