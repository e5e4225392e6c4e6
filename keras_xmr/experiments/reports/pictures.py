"""Pictures of a report: PNG, the numbers as CSV, and an explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keras_xmr.experiments.reports.metric_tables import CHANCE
from keras_xmr.experiments.reports.pages import data_url
from keras_xmr.utils.directions import DIRECTIONS
from keras_xmr.utils.files import atomic_write, replace_atomically
from keras_xmr.utils.spreadsheets import to_csv

QUESTIONS = {"image": "image-to-text", "text": "text-to-image"}
"""The direction in which images, or captions, are the queries."""

DIRECTION_TITLES = dict(zip(DIRECTIONS, QUESTIONS.values(), strict=True))
"""The titles of the directions."""

COLOURS = {"image": "tab:blue", "text": "tab:orange"}
"""The colour of each side in pictures."""

SIZE = (4.6, 3.4)
"""Inches of a picture with one panel; a wide page has two per row."""

CHANCE_STYLE: dict[str, Any] = {"ls": ":", "color": "0.4", "label": CHANCE}
"""The line of a random ranking."""

Rows = list[tuple[object, ...]]
"""The numbers of a picture."""


@dataclass
class Picture:
    """A drawing with its numbers and an explanation.

    Attributes:
        name: The file, without `.png` or `.csv`.
        title: The title.
        see: The explanation below it.
        drawing: The figure of matplotlib.
        header: The columns of its numbers.
        rows: The numbers.
    """

    name: str
    title: str
    see: str
    drawing: Figure
    header: Sequence[str]
    rows: Iterable[Sequence[object]] = field(default_factory=list)

    def write(self, folder: Path) -> dict[str, str]:
        """Writes PNG and CSV.

        Returns:
            Title, explanation and address of the picture, for a page.
        """
        png = save_plot(self.drawing, folder / f"{self.name}.png")
        atomic_write(folder / f"{self.name}.csv", to_csv([self.header, *self.rows], digits=6))
        url = data_url(png.read_bytes(), "image/png")
        return {"title": self.title, "see": self.see, "url": url}


def columns(**values: Any) -> tuple[list[str], Rows]:
    """Returns the header and rows of a picture from its columns, which are of one length."""
    return list(values), list(zip(*values.values(), strict=True))


def labelled(names: tuple[object, ...], *values: Iterable[object]) -> Rows:
    """Returns rows of a picture from columns of one length, each of which begins with the same
    names.
    """
    return [(*names, *cells) for cells in zip(*values, strict=True)]


def save_plot(drawing: Figure, path: Path) -> Path:
    """Writes a drawing as PNG, and returns the path."""
    drawing.tight_layout()
    with replace_atomically(path, path.suffix) as temporary:
        drawing.savefig(temporary, dpi=110)
    return path


def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float], **options: Any
) -> tuple[Figure, Any]:
    """Returns a drawing and its panels, as `pyplot.subplots` does.

    `pyplot` itself has settings for a whole process: how a notebook shows the drawings of its user.

    Args:
        rows: Rows of panels.
        columns: Panels per row.
        size: Width and height in inches.
        **options: Options of `Figure.subplots`.
    """
    drawing = Figure(figsize=size)
    return drawing, drawing.subplots(rows, columns, **options)


def panel(title: str, x: str, y: str, size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """Returns a drawing with one panel."""
    drawing, axis = panels(size=size)
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    return drawing, axis


def both_directions(
    draw: Callable[[Axes, str], Iterable[tuple[object, ...]]], label: str, **style: Any
) -> tuple[Figure, Rows]:
    """Returns a panel per direction, one below the other, with one legend below both.

    Args:
        draw: Draws the lines of a direction, and yields their numbers.
        label: The label of both vertical axes.
        **style: Further properties of both panels.

    Returns:
        The drawing, and the rows of its numbers.
    """
    drawing, axes = panels(2, 1, size=(5.4, 7), sharey=True)
    rows: Rows = []
    for axis, (direction, title) in zip(axes, DIRECTION_TITLES.items(), strict=True):
        rows += draw(axis, direction)
        axis.set(title=title, **style)
        axis.set_ylabel(label, fontsize=8)
        axis.grid(alpha=0.3)
    legend_below(axes[1])
    return drawing, rows


def legend_below(axis: Axes) -> None:
    """Adds a legend below a panel."""
    axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.24))
