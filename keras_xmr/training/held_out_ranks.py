"""How badly each item of a training split is retrieved by maps that have not seen it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keras_xmr.evaluation.cca import CanonicalCorrelations, Projections

STRENGTHS = tuple(10.0**power for power in range(-3, 4))
"""Ridges that are tried, as multiples of the mean square of a feature."""


def held_out_log_ranks(
    images: np.ndarray,
    captions: np.ndarray,
    image_ids: np.ndarray,
    fold_of: np.ndarray,
    options: Projections,
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the ranks of annotated items, by CCA of the other folds.

    Both galleries are those of the fold, and of several captions of an image the best one counts.

    Args:
        images: Image vectors (N, F).
        captions: Caption vectors (M, G).
        image_ids: The row of the image of each caption, (M,).
        fold_of: The fold of each image, (N,).
        options: The ridges, exponent and number of directions of the maps.

    Returns:
        Of images as queries (N,), NaN where an image has no caption, and of captions (M,).
    """
    of_images, of_captions = np.full(len(images), np.nan), np.full(len(captions), np.nan)
    for fold in np.unique(fold_of):
        held = fold_of == fold
        held_captions = held[image_ids]
        others = _places(~held)[image_ids[~held_captions]]
        cca = CanonicalCorrelations(images[~held], captions[~held_captions], others)
        ridges = [options.image_ridge], [options.caption_ridge]
        size, exponents = options.image.shape[1], [options.exponent]
        maps = next(cca.projections(size, *ridges, exponents, [options.directions]))
        scores = cca.scores(maps, images[held], captions[held_captions])
        own = _places(held)[image_ids[held_captions]]
        annotated = scores[own, np.arange(len(own))]
        best = np.full(len(scores), -np.inf)
        np.maximum.at(best, own, annotated)
        is_other = own != np.arange(len(scores))[:, None]
        ranks = 1 + ((scores >= best[:, None]) & is_other).sum(axis=1)
        of_images[held] = np.where(np.isfinite(best), np.log(ranks), np.nan)
        of_captions[held_captions] = np.log((scores >= annotated).sum(axis=0))
    return of_images, of_captions


def predict(
    inputs: np.ndarray, values: np.ndarray, fold_of: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Ridge regression of values on inputs, whose strength is the best on held-out folds.

    Args:
        inputs: Features (N, F).
        values: What is predicted (N,); NaN is left out.
        fold_of: The fold of each row, (N,).

    Returns:
        The slope (F,), the intercept, and the share of the held-out variance that is explained.
    """
    known = ~np.isnan(values)
    inputs, values, fold_of = inputs[known], values[known], fold_of[known]
    errors = np.zeros(len(STRENGTHS))
    for fold in np.unique(fold_of):
        held = fold_of == fold
        fits = _ridges(inputs[~held], values[~held])
        for number, (slope, intercept) in enumerate(fits):
            errors[number] += np.square(inputs[held] @ slope + intercept - values[held]).sum()
    best = int(errors.argmin())
    slope, intercept = list(_ridges(inputs, values))[best]
    total = np.square(values - values.mean()).sum()
    return slope, intercept, float(1 - errors[best] / total) if total else 0.0


def _ridges(inputs: np.ndarray, values: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Slope and intercept for each of `STRENGTHS`."""
    centre, mean = inputs.mean(axis=0), values.mean()
    centred = inputs - centre
    squares, axes = np.linalg.eigh(centred.T @ centred)
    target = axes.T @ (centred.T @ (values - mean))
    for strength in STRENGTHS:
        slope = axes @ (target / (np.maximum(squares, 0) + strength * squares.mean()))
        yield slope, float(mean - centre @ slope)


def _places(kept: np.ndarray) -> np.ndarray:
    """The row of each item among those that are kept, (N,)."""
    return np.cumsum(kept) - 1
