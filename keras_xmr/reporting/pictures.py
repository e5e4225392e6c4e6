"""Pictures of a report: PNG, the numbers as CSV, and an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from data_pipelines.files import atomic_write, replace_atomically
from keras_xmr.reporting.pages import data_url
from keras_xmr.reporting.table import to_csv

matplotlib.use("Agg")

import matplotlib.pyplot as plt

SIDES = {"image": "image-to-text", "caption": "text-to-image"}
"""The direction in which images, or captions, are the queries."""

DIRECTIONS = {"i2t": "image-to-text", "t2i": "text-to-image"}
"""The directions by their names in metrics."""

COLOURS = {"image": "tab:blue", "caption": "tab:orange"}
"""The colour of each side in pictures."""

SIZE = (4.6, 3.4)
"""Inches of a picture with one panel; a wide page has two per row."""


@dataclass
class Picture:
    """A drawing with its numbers and an explanation.

    Attributes:
        name: Its file, without `.png` or `.csv`.
        title: Its title.
        see: The explanation below it.
        figure: The drawing.
        header: The columns of its numbers.
        rows: Its numbers.
    """

    name: str
    title: str
    see: str
    figure: plt.Figure
    header: Sequence[str]
    rows: Iterable[Sequence[object]] = field(default_factory=list)

    def write(self, folder: Path) -> dict[str, str]:
        """Writes PNG and CSV, and closes the drawing.

        Returns:
            Title, explanation and address of the picture, for a page.
        """
        png = save_plot(self.figure, folder / f"{self.name}.png")
        rows = [[_short(cell) for cell in row] for row in self.rows]
        atomic_write(folder / f"{self.name}.csv", to_csv([self.header, *rows]))
        return {
            "title": self.title,
            "see": self.see,
            "url": data_url(png.read_bytes(), "image/png"),
        }


def columns(**values: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Header and rows of a picture from its columns, which are of one length."""
    lists = (np.asarray(column).tolist() for column in values.values())
    return list(values), list(zip(*lists, strict=True))


def save_plot(figure: plt.Figure, path: Path) -> Path:
    """Writes a figure as PNG, closes it, and returns the path."""
    figure.tight_layout()
    try:
        with replace_atomically(path, path.suffix) as temporary:
            figure.savefig(temporary, dpi=110)
    finally:
        plt.close(figure)
    return path


def panel(title: str, x: str, y: str) -> tuple[plt.Figure, plt.Axes]:
    """A drawing with one panel."""
    drawing, axis = plt.subplots(figsize=SIZE)
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    return drawing, axis


def _short(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else cell
