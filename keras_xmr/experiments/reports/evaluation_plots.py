"""Pictures of an evaluation: ranks, scores, sets and Gaussians, as papers draw them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from keras_xmr.experiments.evaluation.score_curves import (
    ZETAS,
    plausible_counts,
    plausible_match_by_zeta,
    precision_by_top,
    relevance_by_rank,
    set_correlation,
)
from keras_xmr.experiments.evaluation.split_evaluation import (
    Arrays,
    Attention,
    Evaluation,
    MatcherEvaluation,
)
from keras_xmr.experiments.evaluation.uncertainty.probes import PAIRS
from keras_xmr.experiments.reports.metric_tables import CHANCE
from keras_xmr.experiments.reports.pages import explain
from keras_xmr.experiments.reports.pictures import (
    CHANCE_STYLE,
    COLOURS,
    DIRECTION_TITLES,
    Picture,
    Rows,
    both_directions,
    columns,
    labelled,
    panel,
    panels,
)
from keras_xmr.metrics import QueryMetrics, RetrievalMetrics, by_positives, chance, chance_recall
from keras_xmr.utils.directions import SHORT

_IMAGES_OF_PLANE = 9
_COLUMNS_OF_ATTENTION = 8


def rank_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Yields pictures of ranks and of relevant items."""
    yield _recall_curves(evaluation)
    if len(by_positives(_most_judged(evaluation.matchers[0]).text_to_image)) > 1:
        yield _by_positives(evaluation)


def _recall_curves(evaluation: Evaluation) -> Picture:
    def draw(axis: Axes, direction: str) -> Iterator[tuple[object, ...]]:
        for matcher in evaluation.matchers:
            queries, candidates = _queries(matcher.metrics, direction)
            known = queries.values["rank"][~np.isnan(queries.values["rank"])]
            ranks, counts = np.unique(known, return_counts=True)
            share = 100 * counts.cumsum() / max(len(known), 1)
            axis.step([1, *ranks], [0, *share], where="post", label=matcher.name)
            yield from labelled((DIRECTION_TITLES[direction], matcher.name), ranks, share)
        at = np.unique(np.geomspace(1, candidates, 100).astype(int))
        share = 100 * chance_recall(queries.positives, candidates, at)
        axis.plot(at, share, **CHANCE_STYLE)
        yield from labelled((DIRECTION_TITLES[direction], CHANCE), at, share)

    style = {"xlabel": "K", "xscale": "log", "xlim": (1, None), "ylim": (0, 100)}
    drawing, rows = both_directions(draw, "recall at K (%)", **style)
    header = ("queries", "matcher", "k", "recall")
    return Picture("recall", "recall at K", explain("recall"), drawing, header, rows)


def _queries(metrics: RetrievalMetrics, direction: str) -> tuple[QueryMetrics, int]:
    """Returns the metrics of the queries of a direction, and the number of their candidates."""
    both = metrics.image_to_text, metrics.text_to_image
    queries, others = both if direction == "image_to_text" else both[::-1]
    return queries, len(others.positives)


def _most_judged(matcher: MatcherEvaluation) -> RetrievalMetrics:
    """Returns metrics against the exhaustive truth, where it is known."""
    return matcher.metrics if matcher.truth is None else matcher.truth


def _by_positives(evaluation: Evaluation) -> Picture:
    def draw(axis: Axes, direction: str) -> Iterator[tuple[object, ...]]:
        for matcher in evaluation.matchers:
            queries, candidates = _queries(_most_judged(matcher), direction)
            bins = by_positives(queries)
            recall = [100 * part.means["recall_1"] for part in bins]
            most = [part.most for part in bins]
            axis.plot(most, recall, marker="o", label=matcher.name)
            yield from labelled((DIRECTION_TITLES[direction], matcher.name), most, recall)
        by_chance = [100 * part.positives / candidates for part in bins]
        axis.plot(most, by_chance, **CHANCE_STYLE)
        yield from labelled((DIRECTION_TITLES[direction], CHANCE), most, by_chance)
        axis.set_xscale("log", base=2)

    label = "relevant items of a query (at most)"
    drawing, rows = both_directions(draw, "R@1 (%)", xlabel=label, ylim=(0, 100))
    header = ("queries", "matcher", "right_answers_at_most", "recall_1")
    title = "recall and relevant items"
    return Picture("positives", title, explain("positives"), drawing, header, rows)


def curve_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Pictures of scores and of sets as papers draw them, for which the evaluation has numbers."""
    counts = plausible_counts(evaluation.ground_truth)
    if len(counts) > 1:
        yield _plausible(counts)
    if evaluation.ground_truth.has_label_vectors:
        yield _by_zeta(evaluation)
    if (relevance := evaluation.ground_truth.relevance) is not None:
        yield from (_by_rank(evaluation, relevance, direction) for direction in DIRECTION_TITLES)
    for direction, curve in precision_by_top(evaluation.matchers[0].metrics.summary).items():
        if len(curve) > 1:
            yield _by_top(evaluation, direction)
    for side, embedding in evaluation.embedded.sides.items():
        points = embedding.get("points")
        if points is not None and points.shape[1] > 1:
            yield _correlation(side, points)
    if evaluation.attention is not None:
        yield attention_picture(evaluation.attention)


def _plausible(counts_by_kind: Mapping[str, np.ndarray]) -> Picture:
    """Returns the number of relevant items by each kind of judgements."""
    drawing, axis = panel("captions", "relevant images of a caption, at least", "captions (%)")
    rows: Rows = []
    for name, counts in counts_by_kind.items():
        values, sizes = np.unique(counts, return_counts=True)
        share = 100 * sizes[::-1].cumsum()[::-1] / len(counts)
        # From all captions down to none: a line that ends at its first value would be invisible.
        ends = [0, *values, values[-1]], [100, *share, 0]
        axis.step(*ends, where="pre", marker=".", ms=4, label=name)
        rows += labelled((name,), values, share)
    axis.set(xscale="symlog", ylim=(0, 105), xlim=(0, None))
    axis.legend(fontsize=8)
    name, header = "plausible_matches", ("judgements", "right_images_at_least", "captions")
    return Picture(name, "plausible matches", explain(name), drawing, header, rows)


def _by_rank(evaluation: Evaluation, relevance: np.ndarray, direction: str) -> Picture:
    curves = relevance_by_rank(evaluation.matchers[0].scores, relevance, direction)
    shown = len(curves["by score"])
    drawing, axis = panel(DIRECTION_TITLES[direction], f"rank (the first {shown:,})", "relevance")
    axis.locator_params(axis="x", integer=True)
    for (name, values), style in zip(curves.items(), ("-", "--", ":"), strict=True):
        axis.plot(np.arange(1, len(values) + 1), values, style, label=name)
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    table = columns(rank=range(1, shown + 1), **curves)
    title, see = f"relevance by rank, {DIRECTION_TITLES[direction]}", explain("relevance_rank")
    return Picture(f"relevance_rank_{SHORT[direction]}", title, see, drawing, *table)


def _by_zeta(evaluation: Evaluation) -> Picture:
    matcher = evaluation.matchers[0]
    curves = plausible_match_by_zeta(matcher.scores, evaluation.ground_truth)
    drawing, axis = panel(matcher.name, "zeta: labels that may differ", "R-Precision (%)")
    for (direction, title), colour in zip(DIRECTION_TITLES.items(), COLOURS.values(), strict=True):
        axis.plot(ZETAS, 100 * curves[direction], "-o", color=colour, label=title, ms=4)
        axis.plot(ZETAS, 100 * curves[f"{direction} chance"], ":", color=colour, label=CHANCE)
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    table = columns(zeta=ZETAS, **curves)
    return Picture("pmrp_zeta", "PMRP by zeta", explain("pmrp_zeta"), drawing, *table)


def _by_top(evaluation: Evaluation, direction: str) -> Picture:
    drawing, axis = panel(DIRECTION_TITLES[direction], "N: the most relevant candidates", "ASP (%)")
    rows: Rows = []
    for matcher in evaluation.matchers:
        curve = precision_by_top(matcher.metrics.summary)[direction]
        tops, values = [top for top, _ in curve], [100 * value for _, value in curve]
        axis.plot(tops, values, "-o", label=matcher.name, ms=4)
        rows += [(matcher.name, *point) for point in curve]
    if curve := precision_by_top(chance(evaluation.matchers[0].metrics))[direction]:
        axis.plot([top for top, _ in curve], [100 * value for _, value in curve], **CHANCE_STYLE)
        rows += [(CHANCE, *point) for point in curve]
    axis.set_xscale("log")
    axis.legend(fontsize=8)
    title, header = f"ASP by N, {DIRECTION_TITLES[direction]}", ("matcher", "n", "asp")
    return Picture(f"asp_top_{SHORT[direction]}", title, explain("asp_top"), drawing, header, rows)


def _correlation(side: str, points: np.ndarray) -> Picture:
    cosines = set_correlation(points)
    drawing, axis = panel(f"{side}s", "embedding of the set", "embedding of the set")
    axis.grid(visible=False)
    shown = axis.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
    drawing.colorbar(shown, label="mean cosine")
    numbers = [str(number) for number in range(1, len(cosines) + 1)]
    axis.set_xticks(range(len(cosines)), numbers)
    axis.set_yticks(range(len(cosines)), numbers)
    for (row, column), cosine in np.ndenumerate(cosines):
        colour = "white" if abs(cosine) > 0.6 else "black"
        text = f"{cosine:.2f}"
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    title, see = f"sub-embedding correlation, {side}s", explain("set_correlation", side)
    return Picture(f"set_correlation_{side}", title, see, drawing, numbers, cosines)


def attention_picture(attention: Attention) -> Picture:
    """Returns a row per photo: its pixels, and under the colours of each map, red at its
    maximum.
    """
    photos = len(attention.keys)
    # With a number where a map has several of a photo.
    maps = [
        {
            f"{name} {number}" if len(of_photos[i]) > 1 else name: one
            for name, of_photos in attention.maps.items()
            for number, one in enumerate(of_photos[i], 1)
        }
        for i in range(photos)
    ]
    names = list(maps[0])[: _COLUMNS_OF_ATTENTION - 1]
    size = (1.35 * (1 + len(names)), 1.42 * photos + 0.3)
    drawing, axes = panels(photos, 1 + len(names), size=size, squeeze=False)
    over = {"cmap": "turbo", "vmin": 0, "alpha": 0.55, "interpolation": "bicubic"}
    for row, pixels, weights in zip(axes, attention.pixels, maps, strict=True):
        for axis, name in zip(row, [None, *names], strict=True):
            whole = axis.imshow(pixels)
            if name is not None:
                axis.imshow(weights[name], extent=whole.get_extent(), **over)
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ["photo", *names], strict=True):
        axis.set_title(title, fontsize=11)
    rows = (
        (key, name, *place, weight)
        for key, named in zip(attention.keys, maps, strict=True)
        for name, weights in named.items()
        for place, weight in np.ndenumerate(weights)
    )
    name, header = "attention", ("photo", "map", "row", "column", "weight")
    return Picture(name, "attention of the model", explain(name), drawing, header, rows)


def shape_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Pictures of Gaussians, for which there are numbers."""
    if _is_flat(evaluation.embedded.images) and _is_flat(evaluation.embedded.captions):
        yield _plane(evaluation)
    if evaluation.probes is not None and evaluation.probes.mixtures is not None:
        yield _mixtures(evaluation.probes.mixtures)


def _is_flat(embedding: Arrays) -> bool:
    return "log_variance" in embedding and embedding["mean"].shape[1] == 2


def _plane(evaluation: Evaluation) -> Picture:
    """Ellipses of 50 % of a few images and their captions (Chun et al. 2021, Fig. 5)."""
    owner, count = evaluation.ground_truth.caption_image, evaluation.images
    chosen = np.linspace(0, count - 1, min(_IMAGES_OF_PLANE, count)).round()
    drawing, axis = panel("embeddings in the plane", "first dimension", "second dimension")
    rows: Rows = []
    for colour, image in enumerate(chosen.astype(int).tolist()):
        name, style = str(evaluation.ground_truth.image_ids[image]), {"color": f"C{colour}"}
        numbers = _ellipse(axis, evaluation.embedded.images, image, 0.5, ls="-", **style)
        rows.append(("image", name, *numbers))
        for caption in np.flatnonzero(owner == image).tolist():
            numbers = _ellipse(axis, evaluation.embedded.captions, caption, 0.5, ls=":", **style)
            rows.append(("caption", name, *numbers))
    if evaluation.unknown is not None:
        numbers = _ellipse(axis, evaluation.unknown, 0, 0.99, color="red", ls="-", lw=2)
        rows.append(("caption", "<unk>", *numbers))
    axis.autoscale_view()
    axis.set_aspect("equal", adjustable="datalim")
    header = ("kind", "image", "mean_1", "mean_2", "sigma_1", "sigma_2")
    return Picture("plane", "embeddings in the plane", explain("plane"), drawing, header, rows)


def _ellipse(
    axis: Axes, embedding: Arrays, number: int, share: float, **style: object
) -> list[float]:
    """Draws the contour of a share of a Gaussian in the plane; returns its means and deviations."""
    mean = np.asarray(embedding["mean"][number], np.float64)
    sigma = np.exp(0.5 * np.asarray(embedding["log_variance"][number], np.float64))
    width, height = 2 * sigma * np.sqrt(-2 * np.log(1 - share))
    axis.add_patch(Ellipse(tuple(mean), width, height, fill=False, **style))
    return [*mean, *sigma]


def _mixtures(divergences: Mapping[str, np.ndarray]) -> Picture:
    drawing, axis = panel("images, mixed and erased", "divergence (0: covered)", "")
    rows: Rows = []
    for place, name in enumerate(PAIRS):
        values = divergences[name]
        mean, error = values.mean(), 1.96 * values.std(ddof=1) / np.sqrt(len(values))
        colour = "tab:blue" if place % 2 == 0 else "0.6"
        axis.barh(place, mean, xerr=error, color=colour, capsize=3, ecolor="0.3")
        rows.append((name, mean, mean - error, mean + error))
    axis.set_yticks(range(len(PAIRS)), [name.replace(", ", ",\n") for name in PAIRS], fontsize=8)
    axis.invert_yaxis()
    header = ("inner_in_outer", "divergence", "low", "high")
    return Picture("set_algebra", "set algebra", explain("set_algebra"), drawing, header, rows)
