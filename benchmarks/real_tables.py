"""Tables and a figure of what benchmarks/real_features.py has found."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from baselines import Ranks

from keras_xmr.evaluation.reporting.pictures import plt, save_plot
from keras_xmr.metrics.bootstrap import Difference, difference, resampled_means

_NAME = re.compile(r"(?P<method>.+)-n(?P<size>\d+)-f(?P<fold>\d+)-s(?P<seed>\d+)")
LABELS = {
    "chance": "chance",
    "ridge": "ridge regression",
    "dual_encoder": "linear dual encoder",
    "dual_encoder_csls": "linear dual encoder, CSLS",
    "cca_of_last_layer": "CCA, last layer of words",
    "cca": "CCA",
    "cca_csls": "CCA, CSLS",
    "cca_of_roots": "CCA of square roots",
    "cca_all_features": "CCA, all features",
    "dual_encoder_all_features": "linear dual encoder, all features",
    "cca_csls_all_features": "CCA, CSLS, all features",
    "dual_encoder_csls_all_features": "linear dual encoder, CSLS, all features",
}

Answers = tuple[np.ndarray, np.ndarray]
"""Recalls of every image (N, 3) and of every caption (M, 3), in percent."""

Sides = tuple[np.ndarray, np.ndarray]
"""What every image (N, ...) and every caption (M, ...) has."""

Measures = Mapping[str, Sides]
"""By the name of a metric, what every image (N,) and every caption (M,) has of it, a fraction."""


@dataclass(frozen=True)
class Result:
    """Results of one run on the test photos of its fold.

    Attributes:
        method: A config, or a baseline.
        size: How many photos it was trained on.
        fold: The number of the fold.
        seed: The seed.
        ranks: Ranks, from 1, of the test photos and of their captions.
        measures: Further metrics; baselines have none.
    """

    method: str
    size: int
    fold: int
    seed: int
    ranks: Ranks
    measures: Measures = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run in a file of results."""
        return f"{self.method}-n{self.size}-f{self.fold}-s{self.seed}"

    def as_json(self) -> dict[str, Any]:
        """Its line in a file of results."""
        measures = {
            name: [side.round(4).tolist() for side in sides]
            for name, sides in self.measures.items()
        }
        ranks = [side.tolist() for side in self.ranks]
        return {"name": self.name, "ranks": ranks, "measures": measures}


def read_results(paths: Sequence[Path]) -> list[Result]:
    """The runs of some files, of which those that are not there are empty."""
    return [
        _result(json.loads(line))
        for path in paths
        if path.exists()
        for line in path.read_text("utf-8").splitlines()
    ]


def _result(line: dict[str, Any]) -> Result:
    match = _NAME.fullmatch(line["name"])
    if match is None:
        raise ValueError(f"{line['name']} is not METHOD-nPHOTOS-fFOLD-sSEED")
    numbers = [int(match[name]) for name in ("size", "fold", "seed")]
    measures = {name: _sides(sides) for name, sides in line.get("measures", {}).items()}
    return Result(match["method"], *numbers, _sides(line["ranks"]), measures)


def _sides(sides: Sequence[Sequence[float]]) -> Sides:
    images, captions = (np.asarray(side) for side in sides)
    return images, captions


def result_lines(
    results: Sequence[Result], size: int, against: Sequence[str] = ("cca",)
) -> Iterator[str]:
    """Lines of a table in Markdown: recalls, RSUM, and the differences to some of the methods.

    A difference is over the folds that both have. The last cell says of how many folds, and how
    many seeds of each, the row is the mean.

    Args:
        results: All results.
        size: How many photos trained.
        against: The methods that others are set beside.
    """
    folds = by_fold(results, size)
    runs = Counter(result.method for result in results if result.size == size)
    to = " | ".join(f"to {_label(other)}" for other in against)
    yield f"| | i2t R@1 | R@5 | R@10 | t2i R@1 | R@5 | R@10 | RSUM | {to} | folds x seeds |"
    yield "| --- |" + " ---: |" * (8 + len(against))
    for method in sorted(folds, key=lambda name: _rsum(folds[name])):
        cells = [f"{number:.1f}" for number in _recalls(folds[method])]
        cells.append(f"**{_rsum(folds[method]):.1f}**")
        cells += [_apart(folds, method, other) for other in against]
        count = len(folds[method])
        cells.append(f"{count} x {runs[method] / count:.2g}")
        yield f"| {_label(method)} | {' | '.join(cells)} |"


def by_fold(results: Sequence[Result], size: int) -> dict[str, dict[int, Answers]]:
    """Methods, and of each its folds: recalls of every query, averaged over seeds."""
    runs: dict[str, dict[int, list[Answers]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result.size == size:
            images, captions = (_hits(side) for side in result.ranks)
            runs[result.method][result.fold].append((images, captions))
    return {
        method: {fold: mean_of_runs(answers) for fold, answers in folds.items()}
        for method, folds in runs.items()
    }


def apart(folds: dict[int, Answers], others: dict[int, Answers]) -> Difference:
    """The difference of two RSUM over the folds that both have, with its interval."""
    shared = sorted(folds.keys() & others.keys())
    mine, theirs = ([side[fold] for fold in shared] for side in (folds, others))
    value = _rsum(dict(enumerate(mine))) - _rsum(dict(enumerate(theirs)))
    return difference(value, _resampled(mine) - _resampled(theirs))


def interval(folds: dict[int, Answers]) -> tuple[float, float]:
    """The 95 % interval of the RSUM over resampled photos."""
    found = difference(_rsum(folds), _resampled(list(folds.values())))
    return found.low, found.high


def draw_learning_curve(results: Sequence[Result], methods: Sequence[str], path: Path) -> None:
    """RSUM of some methods, with intervals, by the number of photos that trained."""
    sizes = sorted({result.size for result in results})
    tables = {size: by_fold(results, size) for size in sizes}
    figure, axes = plt.subplots(figsize=(10, 4.5))
    for number, method in enumerate(methods):
        there = [size for size in sizes if method in tables[size]]
        if not there:
            continue
        values = [_rsum(tables[size][method]) for size in there]
        bounds = np.array([interval(tables[size][method]) for size in there]).T
        places = np.array(there) * 1.015 ** (number - 2)
        errors = np.abs(bounds - values)
        axes.errorbar(places, values, errors, marker="o", capsize=3, label=_label(method))
    axes.set(xscale="log", xlabel="photos that train", ylabel="RSUM on test photos")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    # Ten lines leave no room for it within.
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    save_plot(figure, path)


def _label(method: str) -> str:
    return LABELS.get(method, f"`{method}`")


def _hits(ranks: np.ndarray) -> np.ndarray:
    return 100.0 * (ranks[:, None] <= np.array([1, 5, 10]))


def mean_of_runs(runs: Sequence[Sides]) -> Sides:
    """Metrics per image and caption, averaged over runs."""
    images, captions = (np.mean(side, axis=0) for side in zip(*runs, strict=True))
    return images, captions


def _recalls(folds: dict[int, Answers]) -> np.ndarray:
    """Over all queries of all folds, (6,)."""
    sides = zip(*folds.values(), strict=True)
    return np.concatenate([np.concatenate(side).mean(axis=0) for side in sides])


def _rsum(folds: dict[int, Answers]) -> float:
    return float(_recalls(folds).sum())


def _resampled(folds: list[Answers]) -> np.ndarray:
    """RSUM of 10,000 draws of photos, each with its captions."""
    images = np.concatenate([side.sum(axis=1) for side, _ in folds])
    captions = np.concatenate([side.sum(axis=1) for _, side in folds])
    return resampled_photos(images, captions)


def resampled_photos(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
    """The mean over images (N,) and that over captions (M,), added up, of draws of photos.

    A photo is drawn with its captions, of which each has as many. There are 10,000 draws.
    """
    photo = np.repeat(np.arange(len(images)), len(captions) // len(images))
    found = [
        resampled_means(side[:, None], groups, len(images))[:, 0]
        for side, groups in ((images, np.arange(len(images))), (captions, photo))
    ]
    return found[0] + found[1]


def _apart(folds: dict[str, dict[int, Answers]], method: str, other: str) -> str:
    mine, theirs = folds[method], folds.get(other, {})
    if method == other or not mine.keys() & theirs.keys():
        return ""
    found = apart(mine, theirs)
    return f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
