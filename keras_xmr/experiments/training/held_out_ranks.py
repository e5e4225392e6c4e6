"""Ranks of held-out items, and their prediction, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.linalg

from keras_xmr.judgements import Judgements
from keras_xmr.linear.cca import CanonicalCorrelations, Projections
from keras_xmr.metrics import evaluate_direction, positive_ranks
from keras_xmr.utils.progress import Progress

STRENGTHS = tuple(10.0**power for power in range(-3, 4))
"""Ridges that are tried, as multiples of the mean square of a feature."""


def held_out_log_ranks(
    images: np.ndarray,
    captions: np.ndarray,
    image_ids: np.ndarray,
    fold_of: np.ndarray,
    options: Projections,
    further: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the ranks of annotated items, by CCA of the other folds.

    Galleries of images and of captions are of the fold, and of several captions of an image the
    best one counts.

    Args:
        images: Image vectors (N, F).
        captions: Caption vectors (M, G).
        image_ids: The row of the image of each caption, (M,).
        fold_of: The fold of each image, (N,).
        options: The ridges, exponent and number of directions of the maps.
        further: Vectors of captions that are queries alone (K, G), and rows of their images (K,).

    Returns:
        Of images as queries (N,), NaN where an image has no caption, and of captions (M + K,).
    """
    queries, owners = captions, image_ids
    if further is not None:
        queries, owners = np.concatenate([captions, further[0]]), np.append(image_ids, further[1])
    of_images, of_queries = np.full(len(images), np.nan), np.full(len(queries), np.nan)
    for fold in Progress("computing held-out ranks", unit="folds", iterable=np.unique(fold_of)):
        held = fold_of == fold
        held_captions = held[image_ids]
        others = _places(~held)[image_ids[~held_captions]]
        cca = CanonicalCorrelations(images[~held], captions[~held_captions], others)
        ridges = [options.image_ridge], [options.caption_ridge]
        size, exponents = options.image.shape[1], [options.exponent]
        maps = next(cca.projections(size, *ridges, exponents, [options.directions]))
        held_queries = held[owners]
        image_rows = _places(held)[owners[held_queries]]
        scores = cca.scores(maps, images[held], queries[held_queries])
        count = held_captions.sum()
        pairs = image_rows[:count], image_rows
        gallery, every = (Judgements.from_pairs(rows, len(scores)) for rows in pairs)
        of_images[held] = _log_ranks(scores[:, :count], gallery)
        of_queries[held_queries] = _log_ranks(scores.T, every.transpose())
    return of_images, of_queries


def _log_ranks(scores: np.ndarray, judgements: Judgements) -> np.ndarray:
    """Returns the logarithm of the best rank of a relevant item of each query; NaN without one."""
    return np.log(evaluate_direction(positive_ranks(scores, judgements)).values["rank"])


@dataclass(frozen=True, eq=False)
class Prediction:
    """A ridge regression.

    Attributes:
        slope: The slope (F,).
        intercept: The intercept.
        explained: The share of the held-out variance that is explained.
        strength: The ridge, as in `STRENGTHS`.
    """

    slope: np.ndarray
    intercept: float
    explained: float
    strength: float


def predict(
    inputs: np.ndarray, values: np.ndarray, fold_of: np.ndarray, strength: float | None = None
) -> Prediction:
    """Fits a ridge regression of values on inputs.

    Strengths are tried from the middle one on, towards smaller errors: errors have one valley.

    Args:
        inputs: Features (N, F).
        values: The predicted values (N,); NaN is left out.
        fold_of: The fold of each row, (N,).
        strength: The ridge; None for the one of `STRENGTHS` that is best on held-out folds.
    """
    known = ~np.isnan(values)
    inputs, values, fold_of = inputs[known], values[known], fold_of[known]
    centre, mean, width = inputs.mean(axis=0), values.mean(), inputs.shape[1]
    inputs, values = inputs - centre, values - mean
    axes = None
    if len(inputs) < width:  # A slope lies in the span of the rows.
        axes = np.linalg.svd(inputs, full_matrices=False)[2].T
        inputs = inputs @ axes
    # Sums over a fold and over all: those over the others are their difference.
    folds = [fold_of == fold for fold in np.unique(fold_of)]
    sums = [_sums(inputs[held], values[held]) for held in folds]
    total = [np.sum(each, axis=0) for each in zip(*sums, strict=True)]
    others = [
        tuple(every - part for every, part in zip(total, parts, strict=True)) for parts in sums
    ]

    @cache
    def error(strength: float) -> float:
        """Returns the sum of squared errors of held-out folds."""
        fits = (_ridge(strength / width, *moments) for moments in others)
        return sum(
            float(np.square(inputs[held] @ slope + intercept - values[held]).sum())
            for held, (slope, intercept) in zip(folds, fits, strict=True)
        )

    best = _lowest(error) if strength is None else strength
    slope, intercept = _ridge(best / width, *total)
    slope = slope if axes is None else axes @ slope
    spread = np.square(values).sum()
    explained = float(1 - error(best) / spread) if spread else 0.0
    return Prediction(slope, float(intercept + mean - centre @ slope), explained, best)


def _lowest(error: Callable[[float], float]) -> float:
    """Returns the strength with the smallest error."""
    best, previous = len(STRENGTHS) // 2, -1
    while best != previous:
        near = (n for n in (best, best - 1, best + 1) if 0 <= n < len(STRENGTHS))
        previous, best = best, min(near, key=lambda number: error(STRENGTHS[number]))
    return STRENGTHS[best]


def _sums(inputs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the number of rows, and sums of inputs, of values and of their products."""
    moments = (len(inputs), inputs.sum(axis=0), values.sum(), inputs.T @ inputs, inputs.T @ values)
    return tuple(map(np.asarray, moments))


def _ridge(
    strength: float,
    count: np.ndarray,
    inputs: np.ndarray,
    values: np.ndarray,
    squares: np.ndarray,
    both: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Returns slope and intercept with a multiple of all squares as ridge, by the sums of some
    rows.
    """
    centre, mean = inputs / count, values / count
    squares, target = squares - np.outer(centre, inputs), both - centre * values
    ridge = strength * np.trace(squares)
    slope = scipy.linalg.solve(squares + ridge * np.eye(len(squares)), target, assume_a="pos")
    return slope, float(mean - centre @ slope)


def _places(kept: np.ndarray) -> np.ndarray:
    """Returns the row of each item among those that are kept, (N,)."""
    return np.cumsum(kept) - 1
