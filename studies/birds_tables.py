"""Results of studies/birds.py: their file, and the tables of it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

METRICS = tuple(f"{s}_{m}" for s in ("i2t", "t2i") for m in ("r_precision", "recall_1", "map_at_r"))
_RUN = ("kind", "row", "labels", "seed", "rate", "knob", "epoch", "val", "seconds")
COLUMNS = (*_RUN, "commit", *METRICS)


@dataclass
class Line:
    """A run: of kind "tune" with a validation figure alone, or of kind "test".

    Attributes:
        figures: Percentages by class of `METRICS`, as fractions (6, classes); empty for "tune".
    """

    kind: str
    row: str
    labels: str
    seed: int
    rate: float = 0
    knob: float = 0
    epoch: int = 0
    val: float = 0
    seconds: float = 0
    figures: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies the run; a tested one has the setting that was tuned."""
        setting = (self.rate, self.knob) if self.kind == "tune" else ()
        return (self.kind, self.row, self.labels, self.seed, *setting)

    def summary(self) -> list[str]:
        """Means over the classes, in percent."""
        return [f"{100 * values.mean():.2f}" for values in self.figures]

    def cells(self, commit: str) -> list[Any]:
        """The cells of the file: by metric the figures of all classes, in tenths of percent."""
        run = [getattr(self, name) for name in _RUN]
        run[-2:] = f"{self.val:.3f}", f"{self.seconds:.0f}"
        figures = [" ".join(f"{1000 * v:.0f}" for v in values) for values in self.figures]
        return [*run, commit, *(figures or [""] * len(METRICS))]


def read_lines(path: Path) -> list[Line]:
    """Reads the results; none if there is no file."""
    if not path.exists():
        return []
    lines = []
    with path.open(newline="") as file:
        for cells in csv.DictReader(file):
            figures = [[int(v) / 1000 for v in cells[name].split()] for name in METRICS]
            lines.append(
                Line(
                    *(cells[name] for name in _RUN[:3]),
                    int(cells["seed"]),
                    *(float(cells[name]) for name in ("rate", "knob")),
                    int(cells["epoch"]),
                    *(float(cells[name]) for name in ("val", "seconds")),
                    np.array(figures),
                )
            )
    return lines


def print_tables(lines: Sequence[Line]) -> None:
    """Prints the tables."""
