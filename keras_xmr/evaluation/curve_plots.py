"""Pictures that papers draw of scores and of sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_xmr.evaluation.attention_plots import attention_picture
from keras_xmr.evaluation.curves import (
    ZETAS,
    plausible_match_by_zeta,
    precision_by_top,
    set_correlation,
)
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.reporting.pictures import Picture, panel

_SIDES = {"i2t": "image-to-text", "t2i": "text-to-image"}


def curve_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """Every picture that the evaluation has numbers for."""
    if evaluation.ground_truth.has_label_vectors:
        yield _by_zeta(evaluation)
    for side, curve in precision_by_top(evaluation.matchers[0].metrics.summary).items():
        if curve:
            yield _by_top(evaluation, side)
    for side in ("image", "caption"):
        points = getattr(evaluation.embedded, f"{side}s").get("points")
        if points is not None and points.shape[1] > 1:
            yield _correlation(side, points)
    if evaluation.attention is not None:
        yield attention_picture(evaluation.attention)


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
    axis.set(xticks=range(len(found)), yticks=range(len(found)))
    for row, column in np.ndindex(found.shape):
        dark = abs(found[row, column]) > 0.6
        text = f"{found[row, column]:.2f}"
        colour = "white" if dark else "black"
        axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    see = (
        f"How alike the embeddings of one {side} are. Dark red off the diagonal is a collapsed "
        "set, whose members all say the same; white is a set whose members see different things."
    )
    header = [str(number) for number in range(len(found))]
    title = f"sub-embedding correlation, {side}s"
    return Picture(f"set_correlation_{side}", title, see, drawing, header, found.tolist())
