"""Regularised canonical correlation analysis, in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

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
        caption_ridge: The ridge of the captions, likewise.
        exponent: The power of its canonical correlation that a direction is weighted with.
        directions: How many directions there are; the numbers after them are 0.
    """

    image: np.ndarray
    caption: np.ndarray
    image_ridge: float
    caption_ridge: float
    exponent: float
    directions: int

    @property
    def options(self) -> dict[str, Any]:
        """The options of `CanonicalCorrelations.projections` that make these maps alone."""
        return {
            "image_ridges": (self.image_ridge,),
            "caption_ridges": (self.caption_ridge,),
            "exponents": (self.exponent,),
            "directions": (self.directions,),
        }


class CanonicalCorrelations:
    """Second moments of pairs of vectors, and the maps that correlate them most.

    With covariances A of images, B of captions and C between them, and ridges r and s, the
    directions are the singular vectors of (A + r I)^-1/2 C (B + s I)^-1/2 (Vinod 1976). A direction
    is weighted with a power of its singular value, which orders neighbours better than equal
    weights (Gong et al. 2014, section 3.1). Every pair counts once: an image as often as it has
    captions.

    Directions are computed as the eigenvectors of (A + r I)^-1 C (B + s I)^-1 C^T, so that all
    settings with the same s share the product with B, which is the largest matrix, and all with the
    same r and s share the eigenvectors.

    Args:
        images: Image vectors (N, F).
        captions: Caption vectors (M, G).
        image_ids: The row of the image of each caption, (M,).
        weights: Weights of pairs, sparse (N, M), in place of 1 for each caption with its image.

    Attributes:
        image_mean: Mean of the images, (F,).
        caption_mean: Mean of the captions, (G,).

    Raises:
        ValueError: If no pair has a weight.
    """

    def __init__(
        self,
        images: np.ndarray,
        captions: np.ndarray,
        image_ids: np.ndarray,
        weights: scipy.sparse.csr_array | None = None,
    ) -> None:
        pairs = pair_weights(image_ids, len(images)) if weights is None else weights
        total = pairs.sum()
        if not total > 0:
            raise ValueError("weights: no pair of an image and a caption has one")
        pairs = pairs / total
        of_images, of_captions = (np.asarray(pairs.sum(axis=axis)) for axis in (1, 0))
        self.image_mean = of_images @ images
        self.caption_mean = of_captions @ captions
        left, right = images - self.image_mean, captions - self.caption_mean
        weighted = left * np.sqrt(of_images)[:, None]
        self._image_axes = _axes(weighted)
        if self._image_axes is not None:
            left, weighted = left @ self._image_axes, weighted @ self._image_axes
        self._images = weighted.T @ weighted
        scaled = right * np.sqrt(of_captions)[:, None]
        self._captions = scaled.T @ scaled
        self._between = left.T @ (pairs @ right)
        # The mean variance of a number of an image, of which ridges are multiples.
        self._image_variance = float(np.trace(self._images) / images.shape[1])
        self._caption_variance = float(np.trace(self._captions) / captions.shape[1])

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
            caption_ridges: Multiples of the mean variance of a number of a caption.
            exponents: Powers of the canonical correlations.
            directions: How many of the first directions are kept, no more than D; none for all.
        """
        exponents, kept = list(exponents), _kept(directions, dimension)
        sides = {ridge: self._caption_side(ridge) for ridge in caption_ridges}
        for image_ridge in image_ridges:
            for caption_ridge, side in sides.items():
                found = self._directions(side, image_ridge, dimension)
                for exponent in exponents:
                    for count in kept:
                        yield self._maps(
                            (image_ridge, caption_ridge, exponent, count), side, found, dimension
                        )

    def _caption_side(self, ridge: float) -> np.ndarray:
        """Returns the product (G, R) of (B + s I)^-1 and C^T."""
        return _solve(_with_ridge(self._captions, ridge * self._caption_variance), self._between.T)

    def _directions(
        self, side: np.ndarray, ridge: float, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the largest canonical correlations (K,), and maps of images (R, K) onto
        unit variance.
        """
        lower = np.linalg.cholesky(_with_ridge(self._images, ridge * self._image_variance))
        squared = _solve_lower(lower, _solve_lower(lower, self._between @ side).T)
        size, count = len(squared), min(count, *self._between.shape)
        squares, vectors = scipy.linalg.eigh(
            (squared + squared.T) / 2, subset_by_index=[size - count, size - 1]
        )
        squares, vectors = squares[::-1], vectors[:, ::-1]
        there = squares > _NOTHING * squares[0]
        maps = scipy.linalg.solve_triangular(lower, vectors[:, there], trans=1, lower=True)
        return np.sqrt(squares[there]), maps

    def _maps(
        self,
        setting: tuple[float, float, float, int],
        side: np.ndarray,
        found: tuple[np.ndarray, np.ndarray],
        dimension: int,
    ) -> Projections:
        """Returns the maps of a setting: both ridges, the exponent, and the number of
        directions.
        """
        image_ridge, caption_ridge, exponent, count = setting
        values, left = found[0][:count], found[1][:, :count]
        image = left if self._image_axes is None else self._image_axes @ left
        # Both maps of a direction may have the other sign: rounding must not choose it.
        signs = np.sign(image[np.abs(image).argmax(axis=0), np.arange(image.shape[1])])
        weights = signs * values**exponent
        caption = side @ (left * (weights / values))
        return Projections(
            _wide(image * weights, dimension),
            _wide(caption, dimension),
            image_ridge,
            caption_ridge,
            exponent,
            len(values),
        )

    def project(
        self, maps: Projections, images: np.ndarray, captions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns unit vectors (N, D) and (M, D), float32, of images (N, F) and captions (M, G)."""
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
        grid: Sequence[object],
        images: np.ndarray,
        captions: np.ndarray,
        judgements: Judgements,
    ) -> tuple[float, Projections]:
        """Returns the maps with the largest sum of recalls on a split, the first of equals,
        and the sum.

        The ridges are searched one after the other, from the first of each, until neither gains:
        with six of each this tries 11 to 20 of the 36 pairs. Each pair is tried with all exponents
        and numbers of directions.

        Args:
            dimension: D.
            grid: The options of `projections` that are combined.
            images: Image vectors of the split (N, F).
            captions: Caption vectors (M, G).
            judgements: The relevance judgements of the split.
        """
        search = _Search(self, dimension, grid, (images, captions, judgements))
        rsum, setting = search.run()
        side = search.sides[setting[1]]
        found = self._directions(side, setting[0], dimension)
        return rsum, self._maps(setting, side, found, dimension)


class _Search:
    """The search of `CanonicalCorrelations.best`.

    Args:
        cca: The moments of the training split.
        dimension: D.
        grid: The values of each option.
        split: Vectors of images and of captions, and the judgements, of the validation split.
    """

    def __init__(
        self,
        cca: CanonicalCorrelations,
        dimension: int,
        grid: Sequence[Any],
        split: tuple[np.ndarray, np.ndarray, Judgements],
    ) -> None:
        images, captions, self.judgements = split
        self.cca, self.dimension = cca, dimension
        self.image_ridges, self.caption_ridges, self.exponents, directions = grid
        self.kept = _kept(directions, dimension)
        images = images - cca.image_mean
        self.images = images if cca._image_axes is None else images @ cca._image_axes
        self.captions = captions - cca.caption_mean
        self.sides: dict[float, np.ndarray] = {}
        self._projected: dict[float, np.ndarray] = {}
        self._tried: dict[tuple[float, float], tuple[float, tuple[float, float, float, int]]] = {}

    def run(self) -> tuple[float, tuple[float, float, float, int]]:
        """Returns the largest sum of recalls, and its setting."""
        pair = self.image_ridges[0], self.caption_ridges[0]
        with Progress("choosing the closed form", unit="settings") as bar:
            while True:
                before = pair
                pair = self._best_of([(ridge, pair[1]) for ridge in self.image_ridges], bar)
                pair = self._best_of([(pair[0], ridge) for ridge in self.caption_ridges], bar)
                if pair == before or len(self.image_ridges) == 1 or len(self.caption_ridges) == 1:
                    return self._tried[pair]

    def _best_of(self, pairs: Sequence[tuple[float, float]], bar: Progress) -> tuple[float, float]:
        """Returns the pair of ridges with the largest sum, the first of equals."""
        for pair in pairs:
            if pair not in self._tried:
                self._tried[pair] = max(self._measured(*pair), key=lambda tried: tried[0])
                bar.update(len(self.exponents) * len(self.kept))
        return max(pairs, key=lambda pair: self._tried[pair][0])

    def _measured(
        self, image_ridge: float, caption_ridge: float
    ) -> Iterator[tuple[float, tuple[float, float, float, int]]]:
        """Yields the sums of recalls of all settings with two ridges."""
        if caption_ridge not in self.sides:
            self.sides[caption_ridge] = self.cca._caption_side(caption_ridge)
            self._projected[caption_ridge] = self.captions @ self.sides[caption_ridge]
        side = self.sides[caption_ridge]
        values, maps = self.cca._directions(side, image_ridge, self.dimension)
        images, captions = self.images @ maps, self._projected[caption_ridge] @ (maps / values)
        for exponent in self.exponents:
            for count in self.kept:
                weights = values[:count] ** exponent
                left, right = (
                    unit_rows(vectors[:, :count] * weights).astype(np.float32)
                    for vectors in (images, captions)
                )
                rsum = evaluate_scores(left @ right.T, self.judgements).summary[RSUM]
                yield rsum, (image_ridge, caption_ridge, exponent, count)


def pair_weights(image_ids: np.ndarray, images: int) -> scipy.sparse.csr_array:
    """Returns the weights (N, M) of each caption with its image: 1.

    Args:
        image_ids: The row of the image of each caption, (M,).
        images: N.
    """
    count = len(image_ids)
    places = image_ids, np.arange(count)
    return scipy.sparse.csr_array((np.ones(count), places), shape=(images, count))


def _kept(directions: Iterable[int], dimension: int) -> list[int]:
    """Returns the different numbers of directions, the largest first, of which none is above D."""
    return sorted({min(count, dimension) for count in directions}, reverse=True) or [dimension]


def _axes(vectors: np.ndarray) -> np.ndarray | None:
    """Returns an orthonormal basis (F, R) of fewer rows than numbers; None of as many or more."""
    if len(vectors) >= vectors.shape[1]:
        return None
    values, axes = scipy.linalg.eigh(vectors @ vectors.T)
    there = values > _NOTHING * values.max(initial=0)
    basis: np.ndarray = vectors.T @ (axes[:, there] * values[there] ** -0.5)
    return basis


def _with_ridge(covariance: np.ndarray, ridge: float) -> np.ndarray:
    return covariance + ridge * np.eye(len(covariance))


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the product of the inverse of a positive definite matrix and another one."""
    solved: np.ndarray = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, lower=True), right)
    return solved


def _solve_lower(lower: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the product of the inverse of a lower triangular matrix and another one."""
    solved: np.ndarray = scipy.linalg.solve_triangular(lower, right, lower=True)
    return solved


def _wide(kernel: np.ndarray, dimension: int) -> np.ndarray:
    return np.pad(kernel, [(0, 0), (0, dimension - kernel.shape[1])])
