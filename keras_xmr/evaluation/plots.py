"""Plots of an evaluation."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.results import Evaluation
from keras_xmr.evaluation.uncertainty import COLOURS, SIDES, log_sigma
from keras_xmr.metrics import RetrievalMetrics, by_positives
from keras_xmr.reporting.plots import save_plot

SEE = {
    "recall at K": "The share of queries with a right answer among the first K. The further up and "
    "to the left, the better; where lines meet, matchers find as much if one looks long enough.",
    "recall and right answers": "R@1 of queries with few and with many right answers. Lines that "
    "rise are no merit: the more answers are right, the easier it is to find one.",
    "distribution of sigma": "How unsure the model is of images and of captions. A narrow peak "
    "says that it is as unsure of all.",
    "uncertainty and truth": "Each point is a caption. If sigma knows how vague a caption is, "
    "points rise to the right.",
}
"""What there is to see in each plot."""

_SIDES = {side: (title, COLOURS[side]) for side, title in SIDES.items()}


def write_plots(evaluation: Evaluation, folder: Path) -> dict[str, Path]:
    """Writes every plot that the evaluation has data for.

    Args:
        evaluation: The evaluation.
        folder: Where the PNG files go.

    Returns:
        The files, by what they show.
    """
    plots = {"recall at K": _recall_curves(evaluation, folder / "recall.png")}
    if len(by_positives(_most_judged(evaluation, 0).text_to_image)) > 1:
        plots["recall and right answers"] = _by_positives(evaluation, folder / "positives.png")
    if evaluation.uncertainty_bins:
        plots["distribution of sigma"] = _sigma(evaluation, folder / "sigma.png")
    if evaluation.uncertainty_of_truth is not None:
        plots["uncertainty and truth"] = _truth(evaluation, folder / "uncertainty_truth.png")
    return plots


def _recall_curves(evaluation: Evaluation, path: Path) -> Path:
    figure, axes = plt.subplots(2, 1, figsize=(5, 6.4), sharey=True)
    for axis, (side, (title, _)) in zip(axes, _SIDES.items(), strict=True):
        for matcher in evaluation.matchers:
            metrics = matcher.metrics
            queries = metrics.image_to_text if side == "image" else metrics.text_to_image
            ranks = np.sort(queries.values["rank"][~np.isnan(queries.values["rank"])])
            share = 100 * np.arange(1, len(ranks) + 1) / max(len(ranks), 1)
            axis.step(ranks, share, where="post", label=matcher.name)
        axis.set(title=title, xlabel="K", xscale="log", xlim=(1, None), ylim=(0, 100))
        axis.set_ylabel("recall at K (%)")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return save_plot(figure, path)


def _most_judged(evaluation: Evaluation, matcher: int) -> RetrievalMetrics:
    """Metrics against the exhaustive truth, where it is known."""
    found = evaluation.matchers[matcher]
    return found.metrics if found.truth is None else found.truth


def _by_positives(evaluation: Evaluation, path: Path) -> Path:
    figure, axes = plt.subplots(2, 1, figsize=(5, 6.4), sharey=True)
    for axis, (side, (title, _)) in zip(axes, _SIDES.items(), strict=True):
        for number, matcher in enumerate(evaluation.matchers):
            metrics = _most_judged(evaluation, number)
            bins = by_positives(metrics.image_to_text if side == "image" else metrics.text_to_image)
            recall = [100 * part.means["recall_1"] for part in bins]
            axis.plot([part.most for part in bins], recall, marker="o", label=matcher.name)
        axis.set(title=title, xlabel="right answers of a query (at most)", ylim=(0, 100))
        axis.set_xscale("log", base=2)
        axis.set_ylabel("R@1 (%)")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return save_plot(figure, path)


def _sigma(evaluation: Evaluation, path: Path) -> Path:
    figure, axis = plt.subplots(figsize=(5, 3.4))
    for side, (_, colour) in _SIDES.items():
        values = log_sigma(getattr(evaluation.embedded, f"{side}s"))
        if values is not None:
            # Where all are alike, so narrow a range has no 50 bins.
            low, high = float(values.min()) - 0.01, float(values.max()) + 0.01
            axis.hist(
                values,
                bins=50,
                range=(low, high),
                alpha=0.6,
                color=colour,
                label=f"{side}s",
                density=True,
            )
    axis.set(xlabel="log of the geometric mean of sigma", ylabel="density")
    axis.locator_params(axis="x", nbins=5)
    axis.legend()
    return save_plot(figure, path)


def _truth(evaluation: Evaluation, path: Path) -> Path:
    uncertainty = log_sigma(evaluation.embedded.captions)
    if uncertainty is None or evaluation.truth is None:
        raise ValueError("a plot of the truth needs uncertainties and an exhaustive truth")
    figure, axis = plt.subplots(figsize=(5, 3.4))
    counts = evaluation.truth.transpose().counts()
    axis.scatter(np.maximum(counts, 0.5), uncertainty, s=4, alpha=0.3, color=_SIDES["caption"][1])
    axis.set(
        title=f"rank correlation {evaluation.uncertainty_of_truth:+.2f}",
        xlabel="images that a caption is true of",
        ylabel="log of the geometric mean of sigma",
        xscale="log",
    )
    return save_plot(figure, path)
