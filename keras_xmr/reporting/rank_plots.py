"""Pictures of ranks, of right answers and of sigma."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.results import Evaluation
from keras_xmr.evaluation.uncertainty import COLOURS, SIDES, log_sigma
from keras_xmr.metrics import RetrievalMetrics, by_positives, chance_recall
from keras_xmr.reporting.metric_tables import CHANCE
from keras_xmr.reporting.pictures import Picture, panel

_SIDES = {side: (title, COLOURS[side]) for side, title in SIDES.items()}


def plot_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Every picture that the evaluation has data for."""
    yield _recall_curves(evaluation)
    if len(by_positives(_most_judged(evaluation, 0).text_to_image)) > 1:
        yield _by_positives(evaluation)
    if evaluation.uncertainty_bins:
        yield _sigma(evaluation)
    if evaluation.uncertainty_of_truth is not None:
        yield _truth(evaluation)


def _recall_curves(evaluation: Evaluation) -> Picture:
    drawing, axes = plt.subplots(2, 1, figsize=(5, 6.4), sharey=True)
    rows = []
    for axis, (side, (title, _)) in zip(axes, _SIDES.items(), strict=True):
        for matcher in evaluation.matchers:
            metrics = matcher.metrics
            queries = metrics.image_to_text if side == "image" else metrics.text_to_image
            ranks = np.sort(queries.values["rank"][~np.isnan(queries.values["rank"])])
            share = 100 * np.arange(1, len(ranks) + 1) / max(len(ranks), 1)
            axis.step(ranks, share, where="post", label=matcher.name)
            # Of queries of one rank, the last has the share that is reached there.
            last = np.flatnonzero(np.append(np.diff(ranks) > 0, [True] * bool(len(ranks))))
            rows += [(title, matcher.name, float(ranks[n]), float(share[n])) for n in last]
        right, candidates = _right_answers(evaluation.matchers[0].metrics, side)
        at = np.unique(np.geomspace(1, candidates, 100).astype(int))
        share = 100 * chance_recall(right, candidates, at)
        axis.plot(at, share, ":", color="0.4", label=CHANCE)
        rows += [(title, CHANCE, *point) for point in zip(at.tolist(), share.tolist(), strict=True)]
        axis.set(title=title, xlabel="K", xscale="log", xlim=(1, None), ylim=(0, 100))
        axis.set_ylabel("recall at K (%)")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    see = (
        "The share of queries with a right answer among the first K. The further up and to the "
        "left, the better; where lines meet, matchers find as much if one looks long enough. The "
        "dotted line is a random order."
    )
    header = ("queries", "matcher", "k", "recall")
    return Picture("recall", "recall at K", see, drawing, header, rows)


def _right_answers(metrics: RetrievalMetrics, side: str) -> tuple[np.ndarray, int]:
    """How many answers of each query of a side are right, and how many there are."""
    both = metrics.image_to_text.positives, metrics.text_to_image.positives
    own, other = both if side == "image" else both[::-1]
    return own, len(other)


def _most_judged(evaluation: Evaluation, matcher: int) -> RetrievalMetrics:
    """Metrics against the exhaustive truth, where it is known."""
    found = evaluation.matchers[matcher]
    return found.metrics if found.truth is None else found.truth


def _by_positives(evaluation: Evaluation) -> Picture:
    drawing, axes = plt.subplots(2, 1, figsize=(5, 6.4), sharey=True)
    rows = []
    for axis, (side, (title, _)) in zip(axes, _SIDES.items(), strict=True):
        for number, matcher in enumerate(evaluation.matchers):
            metrics = _most_judged(evaluation, number)
            bins = by_positives(metrics.image_to_text if side == "image" else metrics.text_to_image)
            recall = [100 * part.means["recall_1"] for part in bins]
            most = [part.most for part in bins]
            axis.plot(most, recall, marker="o", label=matcher.name)
            rows += [(title, matcher.name, *point) for point in zip(most, recall, strict=True)]
        _, candidates = _right_answers(evaluation.matchers[0].metrics, side)
        by_chance = [100 * part.positives / candidates for part in bins]
        axis.plot(most, by_chance, ":", color="0.4", label=CHANCE)
        rows += [(title, CHANCE, *point) for point in zip(most, by_chance, strict=True)]
        axis.set(title=title, xlabel="right answers of a query (at most)", ylim=(0, 100))
        axis.set_xscale("log", base=2)
        axis.set_ylabel("R@1 (%)")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    see = (
        "R@1 of queries with few and with many right answers. Lines that rise are no merit: the "
        "more answers are right, the easier it is to find one, as the dotted line of chance shows."
    )
    header = ("queries", "matcher", "right_answers_at_most", "recall_1")
    return Picture("positives", "recall and right answers", see, drawing, header, rows)


def _sigma(evaluation: Evaluation) -> Picture:
    drawing, axis = panel("", "log of the geometric mean of sigma", "density")
    rows = []
    for side, (_, colour) in _SIDES.items():
        values = log_sigma(getattr(evaluation.embedded, f"{side}s"))
        if values is not None:
            # Where all are alike, so narrow a range has no 50 bins.
            span = (float(values.min()) - 0.01, float(values.max()) + 0.01)
            density, edges = np.histogram(values, bins=50, range=span, density=True)
            axis.stairs(density, edges, fill=True, alpha=0.6, color=colour, label=f"{side}s")
            columns = (edges[:-1].tolist(), edges[1:].tolist(), density.tolist())
            rows += [(f"{side}s", *row) for row in zip(*columns, strict=True)]
    axis.locator_params(axis="x", nbins=5)
    axis.legend()
    see = (
        "How unsure the model is of images and of captions. A narrow peak says that it is as "
        "unsure of all."
    )
    header = ("items", "from", "to", "density")
    return Picture("sigma", "distribution of sigma", see, drawing, header, rows)


def _truth(evaluation: Evaluation) -> Picture:
    uncertainty = log_sigma(evaluation.embedded.captions)
    if uncertainty is None or evaluation.truth is None:
        raise ValueError("a plot of the truth needs uncertainties and an exhaustive truth")
    title = f"rank correlation {evaluation.uncertainty_of_truth:+.2f}"
    if evaluation.fewness_of_truth is not None:
        title += f"; of how few words {evaluation.fewness_of_truth:+.2f}"
    drawing, axis = panel(
        title,
        "images that a caption is true of",
        "log of the geometric mean of sigma",
    )
    counts = evaluation.truth.transpose().counts()
    axis.scatter(np.maximum(counts, 0.5), uncertainty, s=4, alpha=0.3, color=_SIDES["caption"][1])
    axis.set_xscale("log")
    see = (
        "Each point is a caption. If sigma knows how vague a caption is, points rise to the right."
    )
    rows = zip(counts.tolist(), uncertainty.tolist(), strict=True)
    header = ("images_it_is_true_of", "log_sigma")
    return Picture("uncertainty_truth", "uncertainty and truth", see, drawing, header, rows)
