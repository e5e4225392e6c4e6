"""What PCME's sigma is said to tell, by the reports of finished runs (Chun et al. 2021, 4.4)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from keras_xmr.metrics.bootstrap import RESAMPLES, Estimate, Seeds


@dataclass(frozen=True)
class Property:
    """Something that is measured of one run.

    Attributes:
        title: What it is called in a table.
        counts: How much of it counts.
        read: Its value and standard error, from the folder of an evaluation.
    """

    title: str
    counts: float
    read: Callable[[Path], tuple[float, float]]


def _surer_half(folder: Path, side: str) -> tuple[float, float]:
    """Recall at 1 in percent of the half with the smaller sigma, minus that of the other half."""
    bins = list(_rows(folder / f"sigma_bins_{side}.csv"))
    half = len(bins) // 2
    surer, other = bins[:half], bins[len(bins) - half :]
    apart = sum(row["recall_1"] for row in surer) - sum(row["recall_1"] for row in other)
    error = np.linalg.norm([_error(row) for row in (*surer, *other)])
    return 100 * apart / half, 100 * float(error) / half


def _damage(folder: Path, side: str) -> tuple[float, float]:
    """By how many percent sigma grows where most of an item is taken away."""
    *_, last = _rows(folder / f"sigma_damage_{side}.csv")
    return 100 * (last["sigma_ratio"] - 1), 100 * _error(last)


def _rows(path: Path) -> Iterator[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: float(text) for name, text in row.items()}


def _error(row: dict[str, float]) -> float:
    return (row["high"] - row["low"]) / 2 / 1.96


PROPERTIES = {
    "image_surer_recall_1": Property("i2t annotated R@1", 1.0, partial(_surer_half, side="image")),
    "caption_surer_recall_1": Property(
        "t2i annotated R@1", 1.0, partial(_surer_half, side="caption")
    ),
    "image_damage": Property("percent of sigma", 1.0, partial(_damage, side="image")),
    "caption_damage": Property("percent of sigma", 1.0, partial(_damage, side="caption")),
}
"""By name."""


def over_runs(name: str, folders: Sequence[Path]) -> Estimate:
    """The mean over runs of a property, over queries and, of several, seeds.

    Args:
        name: The property.
        folders: The folders of evaluations, of seeds of one method.
    """
    found = np.array([PROPERTIES[name].read(folder) for folder in folders])
    values, errors = found.T
    # All seeds are tested on the same queries, so their mean is as uncertain by these as one.
    noise = errors.mean() * np.random.default_rng(0).standard_normal(RESAMPLES)
    runs = len(values)
    seeds = (Seeds(float(values.var(ddof=1)) / runs, 0.0, runs - 1.0),) if runs > 1 else ()
    return Estimate(float(values.mean()), values.mean() + noise, seeds)
