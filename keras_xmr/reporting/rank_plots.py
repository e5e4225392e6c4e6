"""Pictures of ranks, of relevant items and of sigma."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.results import Evaluation, MatcherEvaluation
from keras_xmr.metrics import QueryMetrics, RetrievalMetrics, by_positives, chance_recall
from keras_xmr.reporting.metric_tables import CHANCE
from keras_xmr.reporting.pictures import COLOURS, SIDES, Picture, columns, panel

Points = tuple[Any, Any]
"""The coordinates x and y of a line."""


def plot_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """All pictures for which the evaluation has data."""
    yield _recall_curves(evaluation)
    if len(by_positives(_most_judged(evaluation.matchers[0]).text_to_image)) > 1:
        yield _by_positives(evaluation)
    if evaluation.uncertainty_bins:
        yield _sigma(evaluation)
    if evaluation.uncertainty_of_truth is not None:
        yield _truth(evaluation)


def _both_sides(
    evaluation: Evaluation,
    draw: Callable[[plt.Axes, str], Iterator[tuple[str, Points]]],
    label: str,
    **style: Any,
) -> tuple[plt.Figure, list[tuple[object, ...]]]:
    """A panel per direction, whose lines `draw` adds and yields, and the rows of all lines."""
    drawing, axes = plt.subplots(2, 1, figsize=(5, 6.4), sharey=True)
    rows: list[tuple[object, ...]] = []
    for axis, (side, title) in zip(axes, SIDES.items(), strict=True):
        for name, (x, y) in draw(axis, side):
            points = zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True)
            rows += [(title, name, *point) for point in points]
        axis.set(title=title, ylim=(0, 100), **style)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return drawing, rows


def _recall_curves(evaluation: Evaluation) -> Picture:
    def draw(axis: plt.Axes, side: str) -> Iterator[tuple[str, Points]]:
        for matcher in evaluation.matchers:
            queries, _ = _queries(matcher.metrics, side)
            ranks = np.sort(queries.values["rank"][~np.isnan(queries.values["rank"])])
            share = 100 * np.arange(1, len(ranks) + 1) / max(len(ranks), 1)
            axis.step(ranks, share, where="post", label=matcher.name)
            # Of queries of one rank, the last has the share that is reached there.
            last = np.flatnonzero(np.append(np.diff(ranks) > 0, [True] * bool(len(ranks))))
            yield matcher.name, (ranks[last], share[last])
        queries, candidates = _queries(evaluation.matchers[0].metrics, side)
        at = np.unique(np.geomspace(1, candidates, 100).astype(int))
        share = 100 * chance_recall(queries.positives, candidates, at)
        axis.plot(at, share, ":", color="0.4", label=CHANCE)
        yield CHANCE, (at, share)

    style = {"xlabel": "K", "xscale": "log", "xlim": (1, None)}
    drawing, rows = _both_sides(evaluation, draw, "recall at K (%)", **style)
    see = (
        "The share of queries with a relevant item among the first K: higher is better. Where "
        "lines meet, matchers retrieve equally many at that depth. The dotted line is a random "
        "order."
    )
    header = ("queries", "matcher", "k", "recall")
    return Picture("recall", "recall at K", see, drawing, header, rows)


def _queries(metrics: RetrievalMetrics, side: str) -> tuple[QueryMetrics, int]:
    """The metrics of the queries of a side, and the number of their candidates."""
    both = metrics.image_to_text, metrics.text_to_image
    queries, others = both if side == "image" else both[::-1]
    return queries, len(others.positives)


def _most_judged(matcher: MatcherEvaluation) -> RetrievalMetrics:
    """Metrics against the exhaustive truth, where it is known."""
    return matcher.metrics if matcher.truth is None else matcher.truth


def _by_positives(evaluation: Evaluation) -> Picture:
    def draw(axis: plt.Axes, side: str) -> Iterator[tuple[str, Points]]:
        for matcher in evaluation.matchers:
            queries, candidates = _queries(_most_judged(matcher), side)
            bins = by_positives(queries)
            recall = [100 * part.means["recall_1"] for part in bins]
            most = [part.most for part in bins]
            axis.plot(most, recall, marker="o", label=matcher.name)
            yield matcher.name, (most, recall)
        by_chance = [100 * part.positives / candidates for part in bins]
        axis.plot(most, by_chance, ":", color="0.4", label=CHANCE)
        yield CHANCE, (most, by_chance)
        axis.set_xscale("log", base=2)

    label = "relevant items of a query (at most)"
    drawing, rows = _both_sides(evaluation, draw, "R@1 (%)", xlabel=label)
    see = (
        "R@1 of queries with few and with many relevant items. Rising lines are no merit: the more "
        "relevant items, the easier it is to retrieve one, as the dotted line of chance shows."
    )
    header = ("queries", "matcher", "right_answers_at_most", "recall_1")
    return Picture("positives", "recall and relevant items", see, drawing, header, rows)


def _sigma(evaluation: Evaluation) -> Picture:
    drawing, axis = panel("", "log of the geometric mean of sigma", "density")
    rows: list[tuple[object, ...]] = []
    for side, values in evaluation.embedded.log_sigma().items():
        # Equal values have no range for 50 bins.
        span = (float(values.min()) - 0.01, float(values.max()) + 0.01)
        density, edges = np.histogram(values, bins=50, range=span, density=True)
        axis.stairs(density, edges, fill=True, alpha=0.6, color=COLOURS[side], label=f"{side}s")
        bars = zip(edges[:-1].tolist(), edges[1:].tolist(), density.tolist(), strict=True)
        rows += [(f"{side}s", *bar) for bar in bars]
    axis.locator_params(axis="x", nbins=5)
    axis.legend()
    see = (
        "Distribution of the uncertainty of images and of captions. A narrow peak means that it "
        "hardly differs between items."
    )
    header = ("items", "from", "to", "density")
    return Picture("sigma", "distribution of sigma", see, drawing, header, rows)


def _truth(evaluation: Evaluation) -> Picture:
    uncertainty, truth = evaluation.embedded.log_sigma()["caption"], evaluation.truth
    if truth is None:
        raise ValueError("a plot of the truth needs an exhaustive truth")
    title = f"rank correlation {evaluation.uncertainty_of_truth:+.2f}"
    if evaluation.fewness_of_truth is not None:
        title += f"; of the caption length {evaluation.fewness_of_truth:+.2f}"
    label = "images that a caption is true of"
    drawing, axis = panel(title, label, "log of the geometric mean of sigma")
    counts = truth.transpose().counts()
    axis.scatter(np.maximum(counts, 0.5), uncertainty, s=4, alpha=0.3, color=COLOURS["caption"])
    axis.set_xscale("log")
    see = "A point per caption. If sigma reflects their ambiguity, points rise to the right."
    table = columns(images_it_is_true_of=counts, log_sigma=uncertainty)
    return Picture("uncertainty_truth", "uncertainty and truth", see, drawing, *table)
