"""The page on hardest negatives: scenes, birds and Flickr8K, all with a warm-up on all negatives.

All comparisons of the page are one family.

    python studies/result_pages.py hardest_page
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hardest_negative as scenes
import hidden_positives as hidden
import numpy as np
from comparisons import Difference, Family
from hidden_positives import ALL, COPIES, KINDS, SEEDS, STARTS, TESTED, Results, Task
from methods_table import read_lines

HEADER = ("data", "start", "loss", "condition", "comparison", "difference", "visible from",
          "p, Holm", "verdict")  # fmt: skip
MINUS_ALL, BY_LABELS = "minus all negatives", "the same, minus the same with known pairs"
LABELS = {"annotated": "annotated pairs", "complete": "all true pairs"}

BY_TRUTH = {"truth": "", "r_precision": ", in R-Precision"}
"""Metrics of scenes by the truth. RSUM counts one right answer, R-Precision all of them."""


def scenes_comparisons(
    lines: Sequence[dict[str, Any]],
) -> Iterator[tuple[tuple[str, ...], Difference]]:
    """Yields losses minus all negatives by the truth, with annotated and with all true pairs."""
    lines = [line for line in lines if not line["wrong"]]
    for metric, title in BY_TRUTH.items():
        values = {
            (line["labels"], line["grade"], line["loss"], line["seed"]): line[metric]
            for line in lines
        }
        for grade, share in enumerate(scenes.shares_of(lines)):
            for loss in TESTED:
                gaps = {}
                for labels in LABELS:
                    found = [
                        ((labels, grade, loss, seed), (labels, grade, ALL, seed))
                        for seed in scenes.SEEDS
                    ]
                    if all(key in values for pair in found for key in pair):
                        gaps[labels] = np.array([values[a] - values[b] for a, b in found])
                condition = f"{100 * share:.1f} % of the unlabelled pairs true"
                for labels, own in gaps.items():
                    name = ("scenes", "random", loss, f"{condition}, {LABELS[labels]}")
                    yield (*name, f"{MINUS_ALL}{title}"), Difference.of(own)
                if len(gaps) == len(LABELS):
                    name = ("scenes", "random", loss, condition)
                    difference = Difference.of(gaps["annotated"] - gaps["complete"])
                    yield (*name, f"{BY_LABELS}{title}"), difference


def photo_comparisons(results: Results) -> Iterator[tuple[tuple[str, ...], Difference]]:
    """Yields losses minus all negatives on photos, with pairs hidden and known."""
    for task in tested(results):
        base = task._replace(loss=ALL)
        plain = (1, task), (-1, base)
        name = (task.data, task.start, task.loss, condition_of(task))
        yield (*name, MINUS_ALL), hidden.difference(results, None, *plain)
        if task.kind == "hidden":
            known = (-1, task._replace(kind="known")), (1, base._replace(kind="known"))
            yield (*name, BY_LABELS), hidden.difference(results, None, *plain, *known)


def condition_of(task: Task) -> str:
    """How many relevant pairs of a batch are hidden or known, in words."""
    what = "photos per class" if task.data == "cub" else "captions per photo"
    return f"{task.copies} {what}, {task.kind if task.copies > 1 else 'nothing hidden'}"


def tested(results: Results) -> list[Task]:
    """The tasks of all losses but triplets on all negatives, where all seeds are there."""
    counts: dict[Task, int] = {}
    for run in results:
        if run.split == "test":
            counts[run.task] = counts.get(run.task, 0) + 1
    whole = {task for task, count in counts.items() if count == len(SEEDS[task.data])}
    return [
        task
        for data in COPIES
        for task in hidden.tasks(data)
        if task.loss != ALL and {task, task._replace(loss=ALL)} <= whole
    ]


@cache
def compare() -> Family:
    """All comparisons of the page."""
    family = Family()
    for comparisons in (
        scenes_comparisons(read_lines(scenes.RESULTS)),
        photo_comparisons(hidden.read_results(hidden.RESULTS)),
    ):
        for name, found in comparisons:
            family.add(found, *name)
    return family


def directions_of(results: Results) -> list[list[str]]:
    """A row per task on photos: figures of both directions, and their differences."""
    rows = []
    for task in tested(results):
        base = task._replace(loss=ALL)
        sides = []
        for side in (0, 1):
            sides.append(f"{hidden.difference(results, side, (1, task)).value:.2f}")
            sides.append(str(hidden.difference(results, side, (1, task), (-1, base))))
        rows.append([task.data, task.start, condition_of(task), task.loss, *sides])
    return rows


def tables() -> dict[str, list[Sequence[str]]]:
    """The tables of the page by their names."""
    lines = read_lines(scenes.RESULTS)
    directions = ("i2t", f"i2t, {MINUS_ALL}", "t2i", f"t2i, {MINUS_ALL}")
    results = hidden.read_results(hidden.RESULTS)
    return {
        "hardest_comparisons": [HEADER, *compare().rows()],
        "hardest_directions": [
            ("data", "start", "condition", "loss", *directions),
            *directions_of(results),
        ],
        "scenes_hardest_negative": scenes.rows_of_grades(lines),
        "scenes_labels_cost": scenes.rows_of_labels(lines),
    }


def draw(folder: Path) -> None:
    """Draws scenes by grade, and photos by the number of hidden positives."""
    scenes.draw(read_lines(scenes.RESULTS), folder / "hardest_negative.png")
    _draw_birds(compare(), folder / "hidden_positives.png")


def _draw_birds(family: Family, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure((8.2, 3.6), layout="constrained")
    axes = figure.subplots(1, len(STARTS), sharey=True)
    for axis, start in zip(axes, STARTS, strict=True):
        for number, (loss, marker) in enumerate(zip(TESTED, "os^", strict=True)):
            for kind, style in zip(KINDS, ("-", ":"), strict=True):
                own = [
                    Task("cub", start, loss, n, kind if n > 1 else "known") for n in COPIES["cub"]
                ]
                points = [
                    family.differences["cub", start, loss, condition_of(task), MINUS_ALL]
                    for task in own
                ]
                at = np.log2(COPIES["cub"]) + (number - 1) * 0.06
                axis.errorbar(
                    at, [p.value for p in points], [p.half for p in points], capsize=3,
                    marker=marker, linestyle=style, color=f"C{number}",
                    label=f"{loss}, pairs of others {kind}",
                )  # fmt: skip
        axis.axhline(0, color="0.5", linewidth=0.8)
        axis.set_xticks(np.log2(COPIES["cub"]), COPIES["cub"])
        title = "random weights" if start == "random" else start
        axis.set(title=f"birds, from {title}", xlabel="photos of a class in a batch")
    axes[0].set_ylabel("R-Precision, minus all negatives", fontsize=9)
    figure.legend(
        *axes[0].get_legend_handles_labels(), fontsize=7, loc="outside lower center", ncols=3
    )
    figure.savefig(path, dpi=120)
