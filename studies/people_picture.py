"""The picture of the study: three panels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from model_answers import SplitAnswers
from people_uncertainty import curves

from keras_xmr.evaluation.reporting.pictures import save_plot
from keras_xmr.judgements import Judgements

Rows = Sequence[Any]


def draw(path: Path, test: SplitAnswers, truth: Judgements, rows: Rows) -> None:
    """Draws correlations, risk and coverage, and answer sets.

    Args:
        path: The PNG file.
        test: What the model says of test.
        truth: What the crowd calls right.
        rows: The figures of the study.
    """
    drawing, axes = plt.subplots(1, 3, figsize=(14, 4))
    share = "share that the crowd calls right"
    _bars(axes[0], [r for r in rows if r.part == "correlation" and r.what == share])
    axes[0].set_title("rank correlation with the share\nof photos, or captions, called right")
    for name, curve in curves(test, truth, "caption").items():
        axes[1].plot(curve.coverage, 100 * curve.risk, label=name)
    axes[1].plot(curve.coverage, 100 * curve.best, ":", color="0.4", label="oracle")
    axes[1].set(title="captions: risk by the crowd", xlabel="coverage", ylabel="risk (%)")
    axes[1].legend(fontsize=8)
    held = [r for r in rows if r.part == "coverage" and r.what.startswith("sets with")]
    places = range(len(held))
    values = [100 * row.figure.value for row in held]
    axes[2].bar(places, values, color="tab:blue", width=0.6)
    axes[2].errorbar(places, values, _errors(held), fmt="none", color="black", capsize=3)
    axes[2].axhline(90, linestyle=":", color="0.4")
    axes[2].set_xticks(list(places), [row.who.replace(" and ", "\nand ") for row in held])
    axes[2].set(title="answer sets that hold 80 % of the right photos", ylabel="captions (%)")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
    save_plot(drawing, path)


def _bars(axis: plt.Axes, rows: Rows) -> None:
    rows = [row for row in rows if " - " not in row.who][::-1]
    for place, row in enumerate(rows):
        colour = "tab:orange" if row.about == "captions" else "tab:blue"
        errors = _errors([row], 1)
        axis.errorbar(row.figure.value, place, xerr=errors, fmt="o", color=colour, capsize=3)
    axis.set_yticks(range(len(rows)), [f"{row.about}: {row.who}" for row in rows], fontsize=8)
    axis.axvline(0, color="0.4", linewidth=0.8)


def _errors(rows: Rows, factor: float = 100) -> list[list[float]]:
    """Lengths of intervals below and above; figures of few queries may be outside of them."""
    low = [factor * max(0.0, row.figure.value - row.figure.low) for row in rows]
    high = [factor * max(0.0, row.figure.high - row.figure.value) for row in rows]
    return [low, high]
