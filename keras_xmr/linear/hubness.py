"""Hubness, the mean of the highest scores of an item: large for hubs, which are near everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_xmr.utils.processors import in_threads

NEIGHBOURS = 10
"""Number of neighbours in the hubness of an item (K of Conneau et al. 2018)."""

_ROWS = 64


def hubness(scores: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """Computes the mean of the `count` highest scores of each row, float64 (rows,)."""
    means = in_blocks(lambda of: highest(scores[of], count).mean(1, float), len(scores))
    return np.concatenate(means)


def pair_hubness(
    sides: tuple[np.ndarray, np.ndarray], neighbours: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Computes the mean hubness of each pair, which CSLS subtracts from its cosine, (N, M).

    Args:
        sides: Unit vectors of images (N, D) and of captions (M, D).
        neighbours: Unit vectors of other images and captions, in which hubs are looked for.
    """
    (images, captions), (near_images, near_captions) = sides, neighbours
    of_images, of_captions = hubness(images @ near_captions.T), hubness(captions @ near_images.T)
    return (of_images[:, None] + of_captions) / 2


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Selects the highest scores of each row, ascending (rows, count)."""
    start = max(scores.shape[1] - count, 0)
    # Sorted, so that equal scores have an equal mean.
    return np.sort(np.partition(scores, start, axis=1)[:, start:], axis=1)


def in_blocks(function: Callable[[slice], Any], count: int) -> list[Any]:
    """Calls `function` with slices of `count` rows, in threads."""
    return in_threads(lambda first: function(slice(first, first + _ROWS)), count, _ROWS)
