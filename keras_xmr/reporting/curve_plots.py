"""Pictures that papers draw of scores and of sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_xmr.evaluation.curves import (
    ZETAS,
    plausible_counts,
    plausible_match_by_zeta,
    precision_by_top,
    relevance_by_rank,
    set_correlation,
)
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.reporting.attention_plots import attention_picture
from keras_xmr.reporting.pictures import Picture, panel

_SIDES = {"i2t": "image-to-text", "t2i": "text-to-image"}


def curve_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Every picture that the evaluation has numbers for."""
    if (plausible := _plausible(evaluation)) is not None:
        yield plausible
    if evaluation.ground_truth.has_label_vectors:
        yield _by_zeta(evaluation)
    if (relevance := evaluation.ground_truth.relevance) is not None:
        yield from (_by_rank(evaluation, relevance, side) for side in _SIDES)
    for side, curve in precision_by_top(evaluation.matchers[0].metrics.summary).items():
        if len(curve) > 1:
            yield _by_top(evaluation, side)
    for side in ("image", "caption"):
        points = getattr(evaluation.embedded, f"{side}s").get("points")
        if points is not None and points.shape[1] > 1:
            yield _correlation(side, points)
    if evaluation.attention is not None:
        yield attention_picture(evaluation.attention)


def _plausible(evaluation: Evaluation) -> Picture | None:
    """How many answers are right, by all that is known beside the annotated ones."""
    found = plausible_counts(evaluation.ground_truth)
    if len(found) < 2:
        return None
    drawing, axis = panel("captions", "right images of a caption, at least", "captions (%)")
    rows = []
    for name, counts in found.items():
        values, of = np.unique(counts, return_counts=True)
        share = 100 * of[::-1].cumsum()[::-1] / len(counts)
        # From all captions down to none: a line that ends at its first value would not be seen.
        ends = [0, *values, values[-1]], [100, *share, 0]
        axis.step(*ends, where="pre", marker=".", ms=4, label=name)
        rows += [(name, *row) for row in zip(values.tolist(), share.tolist(), strict=True)]
    axis.set(xscale="symlog", ylim=(0, 105), xlim=(0, None))
    axis.legend(fontsize=8)
    see = (
        "Plausible matches: how many images are right for a caption. A line far to the right of "
        "the annotated one says that most right answers were never annotated, and that R@1 calls "
        "them wrong."
    )
    header = ("judgements", "right_images_at_least", "captions")
    return Picture("plausible_matches", "plausible matches", see, drawing, header, rows)


def _by_rank(evaluation: Evaluation, relevance: np.ndarray, side: str) -> Picture:
    found = relevance_by_rank(evaluation.matchers[0].scores, relevance, side)
    shown = len(found["by score"])
    drawing, axis = panel(_SIDES[side], f"rank (the first {shown:,})", "relevance")
    axis.locator_params(axis="x", integer=True)
    styles = {"by score": "-", "by relevance": "--", "random": ":"}
    for name, values in found.items():
        axis.plot(np.arange(1, len(values) + 1), values, styles[name], label=name)
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    see = (
        "Relevance of the answers in the order of the model, mean over queries. The nearer the "
        "line is to that of the best order, the more of what is nearly right stands where it "
        "should; one that falls to the dotted line after a few ranks knows what was annotated "
        "and no more."
    )
    ranks = range(1, shown + 1)
    rows = zip(ranks, *(values.tolist() for values in found.values()), strict=True)
    title = f"relevance by rank, {_SIDES[side]}"
    return Picture(f"relevance_rank_{side}", title, see, drawing, ("rank", *found), rows)


def _by_zeta(evaluation: Evaluation) -> Picture:
    own = evaluation.matchers[0]
    found = plausible_match_by_zeta(own.scores, evaluation.ground_truth)
    drawing, axis = panel(own.name, "zeta: labels that may differ", "R-Precision (%)")
    for side, colour in zip(_SIDES, ("tab:blue", "tab:orange"), strict=True):
        axis.plot(ZETAS, 100 * found[side], "-o", color=colour, label=_SIDES[side], ms=4)
        axis.plot(ZETAS, 100 * found[f"{side} chance"], ":", color=colour, label="chance")
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    see = (
        "PMRP against zeta. The larger zeta, the more pairs count as right, so the dotted line of "
        "chance rises too. What the model knows is the distance between both."
    )
    rows = zip(ZETAS, *(values.tolist() for values in found.values()), strict=True)
    return Picture("pmrp_zeta", "PMRP against zeta", see, drawing, ("zeta", *found), rows)


def _by_top(evaluation: Evaluation, side: str) -> Picture:
    drawing, axis = panel(_SIDES[side], "N: the most relevant candidates", "ASP (%)")
    rows = []
    for matcher in evaluation.matchers:
        curve = precision_by_top(matcher.metrics.summary)[side]
        tops, values = [top for top, _ in curve], [100 * value for _, value in curve]
        axis.plot(tops, values, "-o", label=matcher.name, ms=4)
        rows += [(matcher.name, *point) for point in curve]
    axis.set_xscale("log")
    axis.legend(fontsize=8)
    see = (
        "ASP of the first N by relevance. Left: does the score order the few best answers as their "
        "captions say? Right: does it order all the rest? The higher the better."
    )
    title = f"ASP by N, {_SIDES[side]}"
    return Picture(f"asp_top_{side}", title, see, drawing, ("matcher", "n", "asp"), rows)


def _correlation(side: str, points: np.ndarray) -> Picture:
    found = set_correlation(points)
    drawing, axis = panel(f"{side}s", "embedding of the set", "embedding of the set")
    axis.grid(visible=False)
    shown = axis.imshow(found, vmin=-1, vmax=1, cmap="RdBu_r")
    drawing.colorbar(shown, label="mean cosine")
    numbers = [str(number) for number in range(1, len(found) + 1)]
    for ticks in (axis.set_xticks, axis.set_yticks):
        ticks(range(len(found)), numbers)
    for row, column in np.ndindex(found.shape):
        dark = abs(found[row, column]) > 0.6
        text = f"{found[row, column]:.2f}"
        colour = "white" if dark else "black"
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    see = (
        f"How alike the embeddings of one {side} are. Dark red off the diagonal is a collapsed "
        "set, whose members all say the same; white is a set whose members see different things."
    )
    title = f"sub-embedding correlation, {side}s"
    return Picture(f"set_correlation_{side}", title, see, drawing, numbers, found.tolist())
