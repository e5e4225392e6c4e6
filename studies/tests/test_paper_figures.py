"""Figures of the papers, drawn from what runs have left."""

from __future__ import annotations

import numpy as np
import paper_figures


def test_pairs_above_each_threshold_are_counted(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        paper_figures, "save_plot", lambda figure, path: drawn.append(figure.axes[0])
    )
    relevance = np.array([[1.0, 0.5, 0.2], [0.0, 0.4, 0.8]], np.float32)
    np.savez(tmp_path / "r.npz", relevance=relevance, image_of_caption=[0, 0, 1])
    paper_figures.main(["pairs", str(tmp_path / "r.npz"), "--output", str(tmp_path / "p.png")])
    every, annotated = drawn[0].lines
    at = list(np.round(every.get_xdata(), 2)).index(0.3)
    assert (every.get_ydata()[at], annotated.get_ydata()[at]) == (4, 3)
