"""Regularised canonical correlation analysis, in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import scipy.linalg

from keras_xmr.judgements import Judgements
from keras_xmr.metrics import RSUM, evaluate_scores
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import unit_rows

# Below this share of the largest square, a square is rounding.
_NOTHING = 1e-13


@dataclass(frozen=True, eq=False)
class Projections:
    """Linear maps of images and captions into one space, and their hyperparameters.

    Attributes:
        image: The map of images, (F, D).
        caption: The map of captions, (G, D).
        image_ridge: The ridge of the images, as a multiple of their mean variance.
        caption_ridge: That of the captions.
        exponent: The power of its canonical correlation that a direction is weighted with.
        directions: How many directions there are; the numbers after them are 0.
    """

    image: np.ndarray
    caption: np.ndarray
    image_ridge: float
    caption_ridge: float
    exponent: float
    directions: int


class CanonicalCorrelations:
    """Second moments of pairs of vectors, and the maps that correlate them most.

    With covariances A of images, B of captions and C between them, and ridges r and s, the
    directions are the singular vectors of (A + r I)^-1/2 C (B + s I)^-1/2 (Vinod 1976). A direction
    is weighted with a power of its singular value, which orders neighbours better than equal
    weights (Gong et al. 2014, section 3.1). Every pair counts once: an image as often as it has
    captions.

    Args:
        images: Image vectors (N, F).
        captions: Caption vectors (M, G).
        image_ids: The row of the image of each caption, (M,).

    Attributes:
        image_mean: Mean of the images, (F,).
        caption_mean: Mean of the captions, (G,).
    """

    def __init__(self, images: np.ndarray, captions: np.ndarray, image_ids: np.ndarray) -> None:
        weights = np.bincount(image_ids, minlength=len(images)).astype(np.float64)
        self.image_mean = weights @ images / len(captions)
        self.caption_mean = captions.mean(axis=0, dtype=np.float64)
        centred = (images - self.image_mean) * np.sqrt(weights / len(captions))[:, None]
        captions_of_images = np.zeros((len(images), captions.shape[1]))
        np.add.at(captions_of_images, image_ids, captions - self.caption_mean)
        captions_of_images /= np.sqrt(np.maximum(weights, 1) * len(captions))[:, None]
        others = (captions - self.caption_mean) / np.sqrt(len(captions))
        self._image_values, self._image_axes = _axes(centred)
        self._caption_values, self._caption_axes = _axes(others)
        self._between = self._image_axes.T @ (centred.T @ captions_of_images) @ self._caption_axes
        self._image_variance = float((centred**2).sum() / images.shape[1])
        self._caption_variance = float((others**2).sum() / captions.shape[1])

    def projections(
        self,
        dimension: int,
        image_ridges: Iterable[float],
        caption_ridges: Iterable[float],
        exponents: Iterable[float],
        directions: Iterable[int] = (),
    ) -> Iterator[Projections]:
        """Yields the maps for every combination of some options.

        Args:
            dimension: D. Where there are fewer directions, the last numbers are 0.
            image_ridges: Multiples of the mean variance of a number of an image.
            caption_ridges: Those of the captions.
            exponents: Powers of the canonical correlations.
            directions: How many of the first directions are kept, no more than D; none for all.
        """
        caption_ridges, exponents = list(caption_ridges), list(exponents)
        kept = _kept(directions, dimension)
        for image_ridge in image_ridges:
            left = (self._image_values + image_ridge * self._image_variance) ** -0.5
            for caption_ridge in caption_ridges:
                right = (self._caption_values + caption_ridge * self._caption_variance) ** -0.5
                u, values, v = _leading(left[:, None] * self._between * right, dimension)
                image = self._image_axes @ (left[:, None] * u)
                # Both maps of a direction may have the other sign: rounding must not choose it.
                signs = np.sign(image[np.abs(image).argmax(axis=0), np.arange(image.shape[1])])
                image *= signs
                caption = self._caption_axes @ (right[:, None] * (v * signs))
                for exponent in exponents:
                    weights = values**exponent
                    left_map, right_map = image * weights, caption * weights
                    for count in kept:
                        yield Projections(
                            _wide(left_map[:, :count], dimension),
                            _wide(right_map[:, :count], dimension),
                            image_ridge,
                            caption_ridge,
                            exponent,
                            min(count, len(values)),
                        )

    def project(
        self, maps: Projections, images: np.ndarray, captions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Unit vectors (N, D) and (M, D), float32, of images (N, F) and captions (M, G)."""
        left = unit_rows((images - self.image_mean) @ maps.image)
        right = unit_rows((captions - self.caption_mean) @ maps.caption)
        return left.astype(np.float32), right.astype(np.float32)

    def scores(self, maps: Projections, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Cosines (N, M), float32, of projected images (N, F) and captions (M, G)."""
        left, right = self.project(maps, images, captions)
        return left @ right.T

    def best(
        self,
        dimension: int,
        grid: Sequence[Any],
        images: np.ndarray,
        captions: np.ndarray,
        judgements: Judgements,
    ) -> tuple[float, Projections]:
        """The maps with the largest sum of recalls on a split, the first of equals, and the sum.

        Args:
            dimension: D.
            grid: The options of `projections` that are combined.
            images: Image vectors of the split (N, F).
            captions: Caption vectors (M, G).
            judgements: The relevance judgements of the split.
        """

        def rsum(maps: Projections) -> float:
            return evaluate_scores(self.scores(maps, images, captions), judgements).summary[RSUM]

        *options, directions = grid
        total = prod(map(len, options)) * len(_kept(directions, dimension))
        maps = self.projections(dimension, *grid)
        choices = Progress("choosing options of CCA", total, "settings", iterable=maps)
        return max(((rsum(maps), maps) for maps in choices), key=lambda tried: tried[0])


def _kept(directions: Iterable[int], dimension: int) -> list[int]:
    """The different numbers of directions, the largest first, of which none is above D."""
    return sorted({min(count, dimension) for count in directions}, reverse=True) or [dimension]


def _axes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The principal variances (R,) and axes (F, R) of rows; their squares add up to variances."""
    if len(vectors) < vectors.shape[1]:
        values, axes = _axes(vectors.T)
        there = values > _NOTHING * values.max(initial=0)
        return values[there], vectors.T @ (axes[:, there] * values[there] ** -0.5)
    values, axes = scipy.linalg.eigh(vectors.T @ vectors)
    return np.maximum(values, 0.0), axes


def _leading(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest singular values (K,) of a matrix (R, S), and their vectors (R, K) and (S, K).

    By the eigenvectors of the product with itself, of which only those that are wanted are
    computed: many times faster than all singular vectors, and directions that matter here are
    orders of magnitude above the precision lost by squaring.
    """
    if matrix.shape[0] > matrix.shape[1]:
        right, values, left = _leading(matrix.T, count)
        return left, values, right
    size = len(matrix)
    squares, left = scipy.linalg.eigh(
        matrix @ matrix.T, subset_by_index=[max(0, size - count), size - 1]
    )
    squares, left = squares[::-1], left[:, ::-1]
    there = squares > _NOTHING * squares[0]
    values, left = np.sqrt(squares[there]), left[:, there]
    return left, values, matrix.T @ (left / values)


def _wide(kernel: np.ndarray, dimension: int) -> np.ndarray:
    return np.pad(kernel, [(0, 0), (0, dimension - kernel.shape[1])])
