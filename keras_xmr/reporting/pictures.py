"""Pictures of a report: PNG, the numbers as CSV, and what there is to see in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

from data_pipelines.files import atomic_write, written_aside
from keras_xmr.reporting.pages import data_url
from keras_xmr.reporting.spreadsheets import csv_of

matplotlib.use("Agg")

import matplotlib.pyplot as plt

SIZE = (4.6, 3.4)
"""Inches of a picture with one panel; two stand beside each other on a wide page."""


@dataclass
class Picture:
    """A picture that was drawn.

    Attributes:
        name: Its file, without `.png` or `.csv`.
        title: What it shows.
        see: What there is to see in it, for the line below.
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
        atomic_write(folder / f"{self.name}.csv", csv_of([self.header, *rows]))
        return {
            "title": self.title,
            "see": self.see,
            "url": data_url(png.read_bytes(), "image/png"),
        }


def save_plot(figure: plt.Figure, path: Path) -> Path:
    """Writes a figure as PNG, closes it, and returns the path."""
    figure.tight_layout()
    try:
        with written_aside(path, path.suffix) as aside:
            figure.savefig(aside, dpi=110)
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
