"""Pictures of scores and of sets as papers draw them."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from keras_xmr.evaluation.curves import (
    ZETAS,
    plausible_counts,
    plausible_match_by_zeta,
    precision_by_top,
    relevance_by_rank,
    set_correlation,
)
from keras_xmr.evaluation.results import Attention, Evaluation
from keras_xmr.reporting.heat import named_maps, overlay
from keras_xmr.reporting.pictures import COLOURS, DIRECTIONS, Picture, columns, panel


def curve_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """All pictures for which the evaluation has numbers."""
    if (plausible := _plausible(evaluation)) is not None:
        yield plausible
    if evaluation.ground_truth.has_label_vectors:
        yield _by_zeta(evaluation)
    if (relevance := evaluation.ground_truth.relevance) is not None:
        yield from (_by_rank(evaluation, relevance, side) for side in DIRECTIONS)
    for side, curve in precision_by_top(evaluation.matchers[0].metrics.summary).items():
        if len(curve) > 1:
            yield _by_top(evaluation, side)
    for side, embedding in evaluation.embedded.sides.items():
        points = embedding.get("points")
        if points is not None and points.shape[1] > 1:
            yield _correlation(side, points)
    if evaluation.attention is not None:
        yield attention_picture(evaluation.attention)


def _plausible(evaluation: Evaluation) -> Picture | None:
    """The number of relevant items by each kind of judgements."""
    counts_by_kind = plausible_counts(evaluation.ground_truth)
    if len(counts_by_kind) < 2:
        return None
    drawing, axis = panel("captions", "relevant images of a caption, at least", "captions (%)")
    rows = []
    for name, counts in counts_by_kind.items():
        values, sizes = np.unique(counts, return_counts=True)
        share = 100 * sizes[::-1].cumsum()[::-1] / len(counts)
        # From all captions down to none: a line that ends at its first value would be invisible.
        ends = [0, *values, values[-1]], [100, *share, 0]
        axis.step(*ends, where="pre", marker=".", ms=4, label=name)
        rows += [(name, *row) for row in zip(values.tolist(), share.tolist(), strict=True)]
    axis.set(xscale="symlog", ylim=(0, 105), xlim=(0, None))
    axis.legend(fontsize=8)
    see = (
        "Plausible matches: the number of relevant images per caption. A line far to the right of "
        "the annotated one means that most relevant items were never annotated, and that R@1 "
        "counts them as wrong."
    )
    header = ("judgements", "right_images_at_least", "captions")
    return Picture("plausible_matches", "plausible matches", see, drawing, header, rows)


def _by_rank(evaluation: Evaluation, relevance: np.ndarray, side: str) -> Picture:
    curves = relevance_by_rank(evaluation.matchers[0].scores, relevance, side)
    shown = len(curves["by score"])
    drawing, axis = panel(DIRECTIONS[side], f"rank (the first {shown:,})", "relevance")
    axis.locator_params(axis="x", integer=True)
    for (name, values), style in zip(curves.items(), ("-", "--", ":"), strict=True):
        axis.plot(np.arange(1, len(values) + 1), values, style, label=name)
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    see = (
        "Relevance of the answers in the order of the scores, mean over queries. The closer the "
        "line is to that of the best order, the better near matches are ranked; a line that falls "
        "to the dotted one after a few ranks reflects the annotated pairs alone."
    )
    table = columns(rank=range(1, shown + 1), **curves)
    title = f"relevance by rank, {DIRECTIONS[side]}"
    return Picture(f"relevance_rank_{side}", title, see, drawing, *table)


def _by_zeta(evaluation: Evaluation) -> Picture:
    matcher = evaluation.matchers[0]
    curves = plausible_match_by_zeta(matcher.scores, evaluation.ground_truth)
    drawing, axis = panel(matcher.name, "zeta: labels that may differ", "R-Precision (%)")
    for (side, title), colour in zip(DIRECTIONS.items(), COLOURS.values(), strict=True):
        axis.plot(ZETAS, 100 * curves[side], "-o", color=colour, label=title, ms=4)
        axis.plot(ZETAS, 100 * curves[f"{side} chance"], ":", color=colour, label="chance")
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    see = (
        "PMRP by zeta. The larger zeta, the more pairs count as relevant, so the dotted line of "
        "chance rises too. The model's merit is the distance between both."
    )
    table = columns(zeta=ZETAS, **curves)
    return Picture("pmrp_zeta", "PMRP by zeta", see, drawing, *table)


def _by_top(evaluation: Evaluation, side: str) -> Picture:
    drawing, axis = panel(DIRECTIONS[side], "N: the most relevant candidates", "ASP (%)")
    rows = []
    for matcher in evaluation.matchers:
        curve = precision_by_top(matcher.metrics.summary)[side]
        tops, values = [top for top, _ in curve], [100 * value for _, value in curve]
        axis.plot(tops, values, "-o", label=matcher.name, ms=4)
        rows += [(matcher.name, *point) for point in curve]
    axis.set_xscale("log")
    axis.legend(fontsize=8)
    see = (
        "ASP of the first N by relevance: how well the order by score agrees with theirs, on the "
        "few best answers at the left, and on more of them to the right. Higher is better."
    )
    title = f"ASP by N, {DIRECTIONS[side]}"
    return Picture(f"asp_top_{side}", title, see, drawing, ("matcher", "n", "asp"), rows)


def _correlation(side: str, points: np.ndarray) -> Picture:
    cosines = set_correlation(points)
    drawing, axis = panel(f"{side}s", "embedding of the set", "embedding of the set")
    axis.grid(visible=False)
    shown = axis.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
    drawing.colorbar(shown, label="mean cosine")
    numbers = [str(number) for number in range(1, len(cosines) + 1)]
    for ticks in (axis.set_xticks, axis.set_yticks):
        ticks(range(len(cosines)), numbers)
    for (row, column), cosine in np.ndenumerate(cosines):
        colour = "white" if abs(cosine) > 0.6 else "black"
        text = f"{cosine:.2f}"
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    see = (
        f"Mean cosine of the embeddings of one {side}. Dark red off the diagonal is a collapsed "
        "set of identical members; white is a set of members that represent different content."
    )
    title = f"sub-embedding correlation, {side}s"
    return Picture(f"set_correlation_{side}", title, see, drawing, numbers, cosines.tolist())


_COLUMNS = 8


def attention_picture(attention: Attention) -> Picture:
    """A row per photo: its pixels, and an overlay per map."""
    photos = len(attention.keys)
    maps = [named_maps({n: m[i] for n, m in attention.maps.items()}) for i in range(photos)]
    names = list(maps[0])[: _COLUMNS - 1]
    size = (1.35 * (1 + len(names)), 1.42 * photos + 0.3)
    drawing, axes = plt.subplots(photos, 1 + len(names), figsize=size, squeeze=False)
    for row, pixels, weights in zip(axes, attention.pixels, maps, strict=True):
        shown = [pixels, *(overlay(pixels, weights[name]) for name in names)]
        for axis, image in zip(row, shown, strict=True):
            axis.imshow(image)
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ["photo", *names], strict=True):
        axis.set_title(title, fontsize=11)
    see = (
        "Attention of the head of the images: red is the largest weight of a map, blue the "
        "smallest. The members of a good set attend to different places."
    )
    header = ("photo", "map", "row", "column", "weight")
    title = "attention of the model"
    return Picture("attention", title, see, drawing, header, _rows(attention, maps))


def _rows(attention: Attention, maps: list[dict[str, np.ndarray]]) -> Iterator[tuple[object, ...]]:
    for key, named in zip(attention.keys, maps, strict=True):
        for name, weights in named.items():
            for (row, column), weight in np.ndenumerate(weights):
                yield key, name, row, column, float(weight)
