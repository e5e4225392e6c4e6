"""What all plots share."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from data_pipelines.files import replace_atomically

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def save_plot(figure: plt.Figure, path: Path) -> Path:
    """Writes a figure as PNG, closes it, and returns the path."""
    figure.tight_layout()
    try:
        with replace_atomically(path, path.suffix) as aside:
            figure.savefig(aside, dpi=110)
    finally:
        plt.close(figure)
    return path
