"""What all plots share."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def save_plot(figure: plt.Figure, path: Path) -> Path:
    """Writes a figure as PNG, closes it, and returns the path."""
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
