"""Figures of the papers, drawn from runs: `keras-xmr figure wei2023:6 --run=FOLDER`."""

from keras_xmr.experiments.reports.figures.base import FIGURES, FigureOptions, draw_figure

__all__ = ["FIGURES", "FigureOptions", "draw_figure"]
