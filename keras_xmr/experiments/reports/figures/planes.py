"""Figures of Gaussian embeddings as ellipses (Chun et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import setp
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from data_pipelines.image_decoding import decode_for_evaluation
from keras_xmr.experiments.evaluation.split_embeddings import embed_captions, embed_split
from keras_xmr.experiments.reports.figures.base import FigureOptions, Run
from keras_xmr.experiments.reports.pictures import panels
from keras_xmr.utils.errors import UserError

GENERIC = "this bird has qxzvqx qxzvqx qxzvqx"
"""The caption "this bird has <unk> ..." of Fig. 5: no vocabulary has its last words."""

_CAPTIONS = 60
"""Captions of a class that are drawn."""


def draw_plane(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws 50 % ellipses by class, images and captions apart, and a generic caption (Fig. 5).

    Without classes, the captions of an image are a class. The generic caption has 99 %.
    """
    run = runs[0]
    split = run.embedded_records.split(options.split)
    embedded = embed_split(run.retriever, split, run.tokenizer, run.config)
    images, captions = _in_the_plane(embedded.images), _in_the_plane(embedded.captions)
    owner = np.asarray(split.caption_image)
    classes = np.array([label[0] if len(label) == 1 else -1 for label in split.labels])
    if run.records.label_kind != "class":
        classes = np.arange(len(split))
    drawn = np.unique(classes[classes >= 0])[: options.classes]
    drawing, axes = panels(1, 2, size=(10, 5.2))
    for number, name in enumerate(drawn.tolist()):
        colour = f"C{number % 10}"
        for axis, side, chosen in (
            (axes[0], images, np.flatnonzero(classes == name)),
            (axes[1], captions, np.flatnonzero(classes[owner] == name)[:_CAPTIONS]),
        ):
            for item in chosen.tolist():
                _ellipse(axis, side, item, 0.5, color=colour, lw=0.8)
    batch = run.config.evaluation.batch_size
    generic = embed_captions(run.retriever, [GENERIC], run.tokenizer, batch)
    _ellipse(axes[1], generic, 0, 0.99, color="red", lw=2.5)
    for axis, title in zip(axes, ("images", "captions, and a generic one in red"), strict=True):
        axis.set(title=title, xlabel="first dimension", ylabel="second dimension")
        axis.autoscale_view()
        axis.set_aspect("equal", adjustable="box")
        axis.grid(alpha=0.3)
    # Shared axes cannot have equal units by their limits; a square has room for both panels.
    ends = np.array([[axis.get_xlim(), axis.get_ylim()] for axis in axes])
    low, high = ends[..., 0].min(axis=0), ends[..., 1].max(axis=0)
    centre, half = (low + high) / 2, (high - low).max() / 2
    limits = np.stack([centre - half, centre + half], axis=1)
    setp(axes, xlim=limits[0], ylim=limits[1])
    return drawing


def draw_mixtures(runs: Sequence[Run], options: FigureOptions) -> Figure:
    """Draws two images, halves of both put together, and half of the first (Fig. 8).

    Embeddings of more than two dimensions are projected to the plane of most of their variance.
    """
    run = runs[0]
    split = run.records.split(options.split)
    if split.holds != "images" or len(split) < options.item + 2:
        raise UserError("a mixture needs two photos after --item; regions cannot be mixed")
    first, second = (
        np.asarray(decode_for_evaluation(split.encoded(item), run.config.data.image))
        for item in (options.item, options.item + 1)
    )
    middle = first.shape[1] // 2
    mixture, half = first.copy(), first.copy()
    mixture[:, middle:], half[:, middle:] = second[:, middle:], 128
    pictures = {"first": first, "second": second, "both halves": mixture, "half of first": half}
    found = run.retriever.image_tower(np.stack(list(pictures.values())), training=False)
    if "log_variance" not in found:
        raise UserError(f"{run.config.name} has no Gaussian embeddings")
    mean = np.asarray(found["mean"], np.float64)
    variance = np.exp(np.asarray(found["log_variance"], np.float64))
    centred = mean - mean.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[2][:2]
    drawing, axes = panels(1, 5, size=(14, 3.4), width_ratios=[1, 1, 1, 1, 2])
    for number, (axis, (name, picture)) in enumerate(zip(axes, pictures.items(), strict=False)):
        axis.imshow(picture)
        axis.set(xticks=[], yticks=[])
        axis.set_title(name, color=f"C{number}", fontsize=10)
        covariance = (basis * variance[number]) @ basis.T
        lengths, directions = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 2 * np.sqrt(lengths[::-1] * -2 * np.log(0.5))
        place = tuple(basis @ centred[number])
        axes[-1].add_patch(
            Ellipse(place, width, height, angle=angle, fill=False, color=f"C{number}", lw=2)
        )
    axes[-1].autoscale_view()
    axes[-1].set_aspect("equal", adjustable="datalim")
    axes[-1].grid(alpha=0.3)
    axes[-1].set_title("50 % of each", fontsize=10)
    return drawing


def _in_the_plane(embedding: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a Gaussian embedding of two dimensions.

    Raises:
        UserError: If it is another one.
    """
    if "log_variance" not in embedding or embedding["mean"].shape[1] != 2:
        raise UserError(
            "this figure is of Gaussian embeddings of two dimensions, such as "
            "ablations/cub_pcme_2d or ablations/scenes_pcme_2d"
        )
    return embedding


def _ellipse(
    axis: Axes, embedding: Mapping[str, Any], number: int, share: float, **style: object
) -> None:
    """Draws the contour of a share of a Gaussian in the plane."""
    mean = np.asarray(embedding["mean"][number], np.float64)
    sigma = np.exp(0.5 * np.asarray(embedding["log_variance"][number], np.float64))
    width, height = 2 * sigma * np.sqrt(-2 * np.log(1 - share))
    axis.add_patch(Ellipse(tuple(mean), width, height, fill=False, **style))
