"""Analyses of the papers that no loss or metric computes, measured on runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import points
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.evaluation.split_evaluation import Arrays, EmbeddedSplit
from keras_xmr.experiments.reports.figures.base import FigureOptions, Run
from keras_xmr.experiments.reports.pictures import SIZE, panels
from keras_xmr.losses.pcme import sample_weights
from keras_xmr.metrics.entropy import TEMPERATURE, embedding_entropy
from keras_xmr.relevance import relevance_matrix
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import draw, select, unit_rows

_ITEMS = 500
"""Images that are measured, drawn with a seed."""

_LISTED = 10


def draw_weights(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws the weight of each pair of samples, by its place among all by distance.

    Chun et al. 2021, Eq. 5: of images with their first captions, and with captions of other images.
    """
    run = runs[0]
    split = run.embedded_records.split(options.split)
    matcher = run.retriever.matcher
    if not hasattr(matcher, "samples") or not hasattr(matcher, "logits"):
        raise UserError(
            f"{run.config.name} draws no samples of Gaussians; take a run with the matcher "
            "match_probability, such as scenes_pcme"
        )
    embedded = embed_split(run.retriever, split, run.tokenizer, run.config)
    images = draw(len(split), _ITEMS)
    captions = np.unique(np.asarray(split.caption_image), return_index=True)[1][images]
    drawing, axes = panels(1, 2, size=(2 * SIZE[0], SIZE[1]), sharey=True)
    titles = ("images and their captions", "images and captions of others")
    others = np.roll(captions, 1)
    for axis, title, partners, is_match in zip(
        axes, titles, (captions, others), (True, False), strict=True
    ):
        weights = weights_by_distance(matcher, embedded, images, partners, is_match)
        places, shown = np.arange(1, weights.shape[1] + 1), weights * weights.shape[1]
        low, high = np.quantile(shown, [0.1, 0.9], axis=0)
        axis.plot(places, shown.mean(axis=0), label="mean")
        axis.fill_between(places, low, high, alpha=0.25, lw=0, label="10 to 90 % of the pairs")
        axis.axhline(1, ls=":", color="0.4", label="equal weights")
        effective = np.exp(-np.sum(weights * np.log(weights + 1e-300), axis=1)).mean()
        axis.set(xlabel="pairs of samples, the nearest first")
        axis.set_title(f"{title}: as {effective:.1f} of {weights.shape[1]} pairs", fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="weight, times the number of pairs", ylim=(0, None))
    axes[0].legend(fontsize=8)
    return drawing


def weights_by_distance(
    matcher: Any, embedded: EmbeddedSplit, images: np.ndarray, captions: np.ndarray, match: bool
) -> np.ndarray:
    """Returns the weights of the pairs of samples of some pairs of items, the nearest first.

    Args:
        matcher: A matcher of samples with `logits`.
        embedded: The embeddings of a split.
        images: Numbers of images (P,).
        captions: The caption of each of them (P,).
        match: Whether they match.

    Returns:
        Float64 (P, J * J).
    """
    rows = []
    sides = (("image", embedded.images, images), ("text", embedded.captions, captions))
    image, caption = (
        matcher.prepare(select(arrays, items), side)["samples"] for side, arrays, items in sides
    )
    for number in range(len(images)):
        pair = (samples[number : number + 1] for samples in (image, caption))
        distance = distances.sampled_euclidean(*pair)
        weights = sample_weights(matcher.logits(distance), np.array([[match]]))
        order = np.argsort(np.ravel(np.asarray(distance)), kind="stable")
        rows.append(np.ravel(np.asarray(weights, np.float64))[order])
    return np.array(rows)


def draw_entropy(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws the entropy of image embeddings by the number of captions that count, a curve per run.

    Wei et al. 2023, Eq. 2: of sets, the mean over the sub-embeddings.
    """
    drawing, axis = panels(size=(6, 4.2))
    most = 1
    for run in runs:
        split = run.embedded_records.split(options.split)
        embedded = embed_split(run.retriever, split, run.tokenizer, run.config)
        means = entropy_by_captions(embedded, np.asarray(split.caption_image), run.config.name)
        numbers = np.arange(1, len(means) + 1)
        axis.plot(numbers, means, "o-", label=run.config.name)
        most = max(most, len(means))
    axis.set(xlabel="captions of an image that count, m", ylabel="entropy H (nats)")
    axis.set_title(f"mean of at most {_ITEMS} images, temperature {TEMPERATURE:g}", fontsize=10)
    axis.set_xticks(range(1, most + 1))
    axis.set_ylim(0, None)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return drawing


def entropy_by_captions(
    embedded: EmbeddedSplit, caption_image: np.ndarray, name: str = "the model"
) -> np.ndarray:
    """Returns the mean entropy of images if the first 1, 2, ... of their captions count.

    Further captions of an image are left out. Images with fewer captions count with all of theirs.

    Args:
        embedded: The embeddings of a split: points or sets.
        caption_image: The image of each caption.
        name: Name of the run, for messages.

    Raises:
        UserError: If the embeddings are no points or sets, or captions are sets.
    """
    images, captions = (_points(side, name) for side in (embedded.images, embedded.captions))
    if captions.shape[1] > 1:
        raise UserError(
            f"{name} embeds captions as sets, and Eq. 2 has one embedding per caption; take a run "
            "such as scenes_dvse"
        )
    order = np.argsort(caption_image, kind="stable")
    first = np.searchsorted(caption_image[order], caption_image[order])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - first
    sums = np.zeros(place.max() + 1)
    drawn = draw(len(images), _ITEMS)
    for image in drawn:
        cosines = images[image] @ captions[:, 0].T
        own = caption_image == image
        for count in range(1, len(sums) + 1):
            left = ~own | (place < count)
            sums[count - 1] += embedding_entropy(cosines[:, left], own[left]).mean()
    return sums / len(drawn)


def _points(embedding: Arrays, name: str) -> np.ndarray:
    """Returns unit vectors (N, K, D)."""
    if "points" not in embedding and "mean" not in embedding:
        raise UserError(f"{name} embeds each word and region; take a run with points or sets")
    return unit_rows(np.asarray(points(dict(embedding))))


def draw_caption_list(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws the captions of the largest relevance to an image, its own ones in green.

    Li et al. 2022, Fig. 1a: the relevance of the config, which is CIDEr by default.
    """
    run = runs[0]
    split = run.records.split(options.split)
    if not 0 <= options.item < len(split):
        raise UserError(f"--item: the split has the images 0 to {len(split) - 1}")
    texts, owners = list(split.texts), np.asarray(split.caption_image)
    measure, tokenizer = run.config.relevance.measure, run.config.relevance.tokenizer
    relevance = relevance_matrix(texts, owners, len(split), measure, tokenizer)
    row = relevance.dense()[options.item]
    first = np.argsort(-row, kind="stable")[:_LISTED]
    own = [texts[caption] for caption in np.flatnonzero(owners == options.item)]
    pairs = [(f"{row[c]:.3f}  {texts[c]}", owners[c] == options.item) for c in first]
    lines = [(split.image_keys[options.item], False), *((text, True) for text in own)]
    lines += [("", False), (f"{_LISTED} captions by {measure}", False), *pairs]
    drawing, axis = panels(size=(9, 0.26 * len(lines) + 0.4))
    axis.axis("off")
    for number, (text, is_own) in enumerate(lines):
        colour = "tab:green" if is_own else "black"
        shown = textwrap.shorten(text, 110)
        place = (0, 1 - (number + 0.5) / len(lines))
        axis.text(*place, shown, color=colour, fontsize=9, transform=axis.transAxes, va="center")
    return drawing
