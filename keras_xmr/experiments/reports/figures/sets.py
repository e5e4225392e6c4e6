"""Figures of sets of sub-embeddings and of fast re-ranking (Wei et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from data_pipelines.batches import image_batches
from keras_xmr.experiments.reports.figures.base import FigureOptions, Run
from keras_xmr.experiments.reports.pictures import DIRECTION_TITLES, panels
from keras_xmr.model.towers import tower_on_features
from keras_xmr.reranking.fast import log_sums
from keras_xmr.utils.errors import UserError

SCALES = tuple(map(float, [1, *range(5, 50, 5), *range(50, 500, 50), *range(500, 1501, 100)]))
"""The axes of Fig. 7: steps of 5 below 50, of 50 below 500, of 100 up to 1,500."""


def draw_sub_embedding_correlation(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws the correlation of the residuals of an image, a panel per run (Fig. 6).

    A sub-embedding that the dynamic mask leaves out has no correlation, and is grey.
    """
    size, ratios = (3.4 * len(runs) + 0.6, 3.4), [*([1.0] * len(runs)), 0.05]
    drawing, axes = panels(1, len(runs) + 1, size=size, width_ratios=ratios)
    for axis, run in zip(axes, runs, strict=False):
        values = sub_embedding_correlation(sub_embeddings(run, options))
        colours = colormaps["RdBu_r"].copy()
        colours.set_bad("0.8")
        shown = axis.imshow(np.ma.masked_invalid(values), vmin=-1, vmax=1, cmap=colours)
        numbers = [str(number) for number in range(1, len(values) + 1)]
        axis.set_xticks(range(len(values)), numbers)
        axis.set_yticks(range(len(values)), numbers)
        axis.set_title(run.config.name, fontsize=8)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if abs(value) > 0.6 else "black"
                text = f"{value:.2f}".replace("-0.00", "0.00")
                axis.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    drawing.colorbar(shown, cax=axes[-1])
    return drawing


def sub_embedding_correlation(vectors: np.ndarray) -> np.ndarray:
    """Returns correlation coefficients (K, K) of vectors (K, D); NaN for those that are 0."""
    centred = vectors - vectors.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centred, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        result: np.ndarray = centred @ centred.T / np.outer(lengths, lengths)
    return np.where(np.isfinite(result), result, np.nan)


def sub_embeddings(run: Run, options: FigureOptions) -> np.ndarray:
    """Returns the residuals of an image, (K, D).

    Raises:
        UserError: If the model has none, or the split has fewer images.
    """
    split = run.embedded_records.split(options.split)
    if not 0 <= options.item < len(split):
        raise UserError(f"--item: the split has the images 0 to {len(split) - 1}")
    model = run.retriever
    if "residuals" not in model.image_tower.output:
        raise UserError(
            f"{run.config.name} has no sub-embeddings of images; take a run with a head such as "
            "dynamic_sub_embeddings or pie_net"
        )
    tower, size = model.image_tower_input_model, run.config.evaluation.batch_size
    if split.holds == "regions" and len(tower.input.shape) == 4:
        tower = tower_on_features(tower)
    batches = image_batches(split, run.config.data.image, size)
    batch = next(iter(batches.skip(options.item // size)))
    found = tower(batch, training=False)["residuals"]
    return np.asarray(found[options.item % size], np.float64)


def draw_scale_grid(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws R@1 after fast re-ranking for every pair of scales (Fig. 7)."""
    run = runs[0]
    split = run.records.split(options.split)
    scores = np.asarray(run.score(options.split).image_to_text)
    scales = options.grid or SCALES
    drawing, axes = panels(1, 2, size=(9.2, 4.2))
    names = ("gamma 1", "gamma 2"), ("lambda 1", "lambda 2")
    for axis, direction, (sums, own) in zip(axes, DIRECTION_TITLES, names, strict=True):
        values = recall_by_scales(scores, np.asarray(split.caption_image), direction, scales)
        shown = axis.imshow(100 * values, origin="lower", cmap="viridis")
        step = max(1, len(scales) // 9)
        places = range(0, len(scales), step)
        labels = [f"{scales[place]:g}" for place in places]
        axis.set_xticks(places, labels, fontsize=7, rotation=60)
        axis.set_yticks(places, labels, fontsize=7)
        axis.set(xlabel=own, ylabel=sums, title=f"{DIRECTION_TITLES[direction]}, R@1 (%)")
        drawing.colorbar(shown, ax=axis, shrink=0.8)
    return drawing


def recall_by_scales(
    scores: np.ndarray, caption_image: np.ndarray, direction: str, scales: Sequence[float]
) -> np.ndarray:
    """Computes R@1 of every scale of the sum (rows) with every scale of the scores (columns).

    Args:
        scores: Scores (images, captions).
        caption_image: The image of each caption.
        direction: `image_to_text` or `text_to_image`.
        scales: The scales.
    """
    axis = 0 if direction == "image_to_text" else 1
    result = np.empty((len(scales), len(scales)))
    for row, scale in enumerate(scales):
        sums = log_sums(scores, {axis: scale})[axis]
        offset = sums[None, :] if direction == "image_to_text" else sums[:, None]
        for column, own in enumerate(scales):
            best = np.argmax(own * scores - offset, axis=1 - axis)
            right = (
                caption_image[best] == np.arange(len(scores))
                if direction == "image_to_text"
                else best == caption_image
            )
            result[row, column] = right.mean()
    return result
