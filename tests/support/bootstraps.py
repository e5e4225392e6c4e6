"""The paired bootstrap of one difference, from the parts that comparisons use."""

from __future__ import annotations

import numpy as np

from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, difference, resampled_means


def paired_bootstrap(
    left: np.ndarray,
    right: np.ndarray,
    groups: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Compares two systems on the same queries.

    Args:
        left: A metric of every query (queries,). A query is left out that is NaN on either side.
        right: The same of the other system.
        groups: See `resampled_means`.
        resamples: How often the queries are resampled.
        seed: Seed of the draws.

    Returns:
        left - right.
    """
    apart = (left.astype(np.float64) - right)[:, None]
    resampled = resampled_means(apart, groups, None, resamples, seed)
    return difference(float(np.nanmean(apart)), resampled[:, 0])
