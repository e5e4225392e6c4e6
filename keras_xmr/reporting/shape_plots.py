"""Pictures of Gaussians: in the plane, mixed, and of the gradients of losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from keras_xmr.evaluation.results import Arrays, Evaluation, GradientCounts
from keras_xmr.reporting.pictures import COLOURS, Picture, panel
from keras_xmr.uncertainty.probes import PAIRS

_IMAGES = 9


def shape_pictures(evaluation: Evaluation) -> Iterator[Picture]:
    """All pictures for which the evaluation has numbers."""
    if _is_flat(evaluation.embedded.images) and _is_flat(evaluation.embedded.captions):
        yield _plane(evaluation)
    if evaluation.probes is not None and evaluation.probes.mixtures is not None:
        yield _mixtures(evaluation.probes.mixtures)
    if evaluation.gradients is not None:
        yield _gradients(evaluation.gradients)


def _is_flat(embedding: Arrays) -> bool:
    return "log_variance" in embedding and embedding["mean"].shape[1] == 2


def _plane(evaluation: Evaluation) -> Picture:
    """Ellipses of 50 % of a few images and their captions (Chun et al. 2021, Fig. 5)."""
    owner = evaluation.ground_truth.caption_image
    chosen = np.linspace(0, evaluation.images - 1, min(_IMAGES, evaluation.images)).round()
    drawing, axis = panel("embeddings in the plane", "first dimension", "second dimension")
    rows: list[tuple[object, ...]] = []
    for colour, image in enumerate(chosen.astype(int).tolist()):
        name = str(evaluation.ground_truth.image_ids[image])
        captions = np.flatnonzero(owner == image)
        items = [("image", evaluation.embedded.images, image)]
        items += [("caption", evaluation.embedded.captions, caption) for caption in captions]
        for kind, embedding, number in items:
            line = "-" if kind == "image" else ":"
            numbers = _ellipse(axis, embedding, number, 0.5, color=f"C{colour}", ls=line)
            rows.append((kind, name, *numbers))
    if evaluation.unknown is not None:
        numbers = _ellipse(axis, evaluation.unknown, 0, 0.99, color="red", ls="-", lw=2)
        rows.append(("caption", "<unk>", *numbers))
    axis.autoscale_view()
    axis.set_aspect("equal", adjustable="datalim")
    see = (
        "Half of the probability of a few images (lines) and of their captions (dotted), a colour "
        "per image. The red line encloses 99 % of a caption of unknown words alone: with "
        "informative variances it is the largest and encloses the others."
    )
    header = ("kind", "image", "mean_1", "mean_2", "sigma_1", "sigma_2")
    return Picture("plane", "embeddings in the plane", see, drawing, header, rows)


def _ellipse(
    axis: plt.Axes, embedding: Arrays, number: int, share: float, **style: object
) -> list[float]:
    """Draws the contour of a share of a Gaussian in the plane; returns its means and deviations."""
    mean = np.asarray(embedding["mean"][number], np.float64)
    sigma = np.exp(0.5 * np.asarray(embedding["log_variance"][number], np.float64))
    width, height = 2 * sigma * np.sqrt(-2 * np.log(1 - share))
    axis.add_patch(Ellipse(tuple(mean), width, height, fill=False, **style))
    return [*mean.tolist(), *sigma.tolist()]


def _mixtures(divergences: Mapping[str, np.ndarray]) -> Picture:
    drawing, axis = panel("images, mixed and erased", "divergence (0: covered)", "")
    rows = []
    for place, name in enumerate(PAIRS):
        values = divergences[name]
        mean, error = values.mean(), 1.96 * values.std(ddof=1) / np.sqrt(len(values))
        colour = "tab:blue" if place % 2 == 0 else "0.6"
        axis.barh(place, mean, xerr=error, color=colour, capsize=3, ecolor="0.3")
        rows.append((name, float(mean), float(mean - error), float(mean + error)))
    axis.set_yticks(range(len(PAIRS)), [name.replace(", ", ",\n") for name in PAIRS], fontsize=8)
    axis.invert_yaxis()
    see = (
        "Set algebra: does the Gaussian of a mixture cover those of the images of its halves, and "
        "that of half an image the whole? It does if blue is shorter than grey; bars are means "
        "with 95 % intervals."
    )
    header = ("inner_in_outer", "divergence", "low", "high")
    return Picture("set_algebra", "set algebra", see, drawing, header, rows)


def _gradients(gradients: GradientCounts) -> Picture:
    drawing, axis = panel(
        f"batches of {gradients.batch_size} pairs", "negatives with a gradient per query", ""
    )
    rows = []
    for place, (name, counts) in enumerate(gradients.counts.items()):
        for shift, (side, colour), numbers in zip(
            (-0.2, 0.2), COLOURS.items(), counts, strict=True
        ):
            label = f"{side}s as queries" if place == 0 else None
            axis.barh(place + shift, numbers.mean(), 0.38, color=colour, label=label)
            rows.append((name, side, float(numbers.mean()), float((numbers == 0).mean())))
    axis.set_yticks(range(len(gradients.counts)), list(gradients.counts), fontsize=8)
    axis.set_xlim(0, None)
    axis.margins(y=0.35)
    axis.legend(fontsize=8, loc="upper right")
    see = (
        "Gradient counting: the number of negatives of a query with a gradient of at least 1 % of "
        "the largest. Near 0 the loss learns from hardly any batch; hardest-negative losses stop "
        "at 1 or 2."
    )
    header = ("loss", "queries", "negatives_with_gradient", "queries_without")
    return Picture("gradient_counts", "gradient counting", see, drawing, header, rows)
