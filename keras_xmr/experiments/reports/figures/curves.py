"""Figures with a curve per run, or a point per run."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_xmr.experiments.evaluation.evaluate import ground_truth, labels_of_files
from keras_xmr.experiments.evaluation.score_curves import (
    ZETAS,
    plausible_match_by_zeta,
    precision_by_top,
)
from keras_xmr.experiments.reports.figures.base import FigureOptions, Run
from keras_xmr.experiments.reports.pictures import DIRECTION_TITLES, SIZE, panels
from keras_xmr.experiments.reports.result_tables import own_results
from keras_xmr.metrics.names import METRICS
from keras_xmr.metrics.results import ANNOTATED
from keras_xmr.utils.directions import SHORT, full_name
from keras_xmr.utils.errors import UserError

PLACES = {"name", "output", "records", "fidelity", "paper", "seed"}
"""Keys of a config that say where a run is, and not what it is."""

_SWEPT = ("recall_1", "recall_5", "r_precision")


def _sides(label: str) -> tuple[Figure, dict[str, Axes]]:
    """Makes a panel per direction."""
    drawing, axes = panels(1, 2, size=(2 * SIZE[0], SIZE[1]))
    for axis, title in zip(axes, DIRECTION_TITLES.values(), strict=True):
        axis.set(title=title, xlabel=label)
        axis.grid(alpha=0.3)
    return drawing, dict(zip(DIRECTION_TITLES, axes, strict=True))


def draw_sweep(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws recalls and R-Precision against the one option in which runs differ.

    Wei et al. 2023, Fig. 8 and 9; Wang et al. 2023, Fig. 4 to 6. Where a query has one right
    answer, R-Precision is R@1, and is not drawn again.
    """
    configs = [dict(flat(run.config.model_dump(mode="json"))) for run in runs]
    name = differing_option(configs)
    order = sorted(range(len(runs)), key=lambda number: configs[number][name])
    drawing, axes = _sides(name)
    summaries = [summary_of(run, options) for run in runs]
    for direction, axis in axes.items():
        drawn: list[list[float]] = []
        for metric in _SWEPT:
            full = full_name(direction, metric)
            if not all(full in summary for summary in summaries):
                continue
            values = [100 * summaries[number][full] for number in order]
            if values not in drawn:
                drawn.append(values)
                places = [configs[number][name] for number in order]
                axis.plot(places, values, "o-", label=METRICS[metric].title)
        axis.set_ylabel("%")
        axis.legend(fontsize=8)
    return drawing


def draw_asp_of_first(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws ASP of the first N by relevance, and of all candidates (Li et al. 2022, Fig. 3)."""
    drawing, axes = _sides("N: the most relevant candidates")
    for run in runs:
        summary = summary_of(run, options)
        split = run.records.split(options.split)
        for direction, candidates in zip(axes, (split.num_captions, len(split)), strict=True):
            curve = precision_by_top(summary)[direction]
            if full_name(direction, "asp") not in summary:
                raise UserError(
                    f"{run.config.name} has no ASP; evaluate it with "
                    "--set evaluation.semantic_precision=true"
                )
            curve = [*curve, (candidates, summary[full_name(direction, "asp")])]
            axes[direction].plot(
                [n for n, _ in curve], [100 * v for _, v in curve], "o-", label=run.config.name
            )
    for axis in axes.values():
        axis.set_xscale("log")
        axis.set_ylabel("ASP (%)")
        axis.legend(fontsize=8)
    return drawing


def draw_asp_by_epoch(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws ASP on the validation split by epoch, a curve per run (Li et al. 2022, Fig. 4)."""
    drawing, axes = _sides("epoch")
    for run in runs:
        if not run.folder.training_log.exists():
            raise UserError(f"{run.folder.training_log} does not exist; train the run")
        with run.folder.training_log.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        for direction, axis in axes.items():
            known = [line for line in lines if line.get(f"val_{SHORT[direction]}_asp")]
            if not known:
                raise UserError(
                    f"{run.config.name} has no ASP by epoch; train it with "
                    "--set train.validate_semantic_precision=true"
                )
            values = [100 * float(line[f"val_{SHORT[direction]}_asp"]) for line in known]
            axis.plot([int(line["epoch"]) for line in known], values, "o-", label=run.config.name)
    for axis in axes.values():
        axis.locator_params(axis="x", integer=True)
        axis.set_ylabel("ASP (%)")
        axis.legend(fontsize=8)
    return drawing


def draw_pmrp_by_zeta(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws R-Precision by the labels that may differ, a curve per run (Wang et al., Fig. 7)."""
    drawing, axes = _sides("zeta: labels that may differ")
    for run in runs:
        split = run.records.split(options.split)
        truth = ground_truth(run.records, split, run.config.data.judgements)
        if (files := run.config.evaluation.labels) is not None:
            truth.labels = labels_of_files(files, truth)
        if not truth.has_label_vectors:
            raise UserError(
                f"{run.config.name} has images without sets of labels; set evaluation.labels"
            )
        curves = plausible_match_by_zeta(run.score(options.split), truth)
        for direction, axis in axes.items():
            axis.plot(ZETAS, 100 * curves[direction], "o-", label=run.config.name)
    for axis in axes.values():
        axis.set_ylabel("R-Precision (%)")
        axis.legend(fontsize=8)
    return drawing


def summary_of(run: Run, options: FigureOptions) -> dict[str, float]:
    """Returns the metrics of the matcher that a run was trained with, by name."""
    results = own_results(run.results.select(split=options.split))
    return results.select(judgements=ANNOTATED).summary()


def differing_option(configs: Sequence[Mapping[str, Any]]) -> str:
    """Finds the one option that differs between configs, by its whole name.

    Raises:
        UserError: If none differs, several do, or its values are not numbers.
    """
    names = {name for config in configs for name in config}
    found = sorted(
        name
        for name in names
        if not PLACES & set(name.split("."))
        and len({json.dumps(config.get(name)) for config in configs}) > 1
    )
    if len(found) != 1 and not _are_opposite([[c.get(name) for name in found] for c in configs]):
        raise UserError(
            f"the runs differ in {', '.join(found) or 'no option'}; give runs of a grid"
        )
    if not all(isinstance(config.get(found[0]), int | float) for config in configs):
        raise UserError(f"{found[0]} has no number in some of the runs")
    return found[0]


def _are_opposite(pairs: Sequence[Sequence[Any]]) -> bool:
    """Returns whether one of two numbers falls where the other grows.

    Weights that share a sum do, as eta and 1 - eta in Wei et al. 2023, Eq. 12.
    """
    if not all(len(pair) == 2 and all(isinstance(x, int | float) for x in pair) for pair in pairs):
        return False
    ordered = sorted((first, second) for first, second in pairs)
    return all(
        first < later and second > smaller
        for (first, second), (later, smaller) in itertools.pairwise(ordered)
    )


def flat(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the options of a config with whole names, such as `objective.0.weight`."""
    if isinstance(values, dict | list) and values:
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in items:
            yield from flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, values
