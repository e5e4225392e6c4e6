"""Re-ranking of a score matrix, as functions; it imports NumPy and SciPy alone.

All queries are used at once (transductive): figures that are re-ranked must say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_xmr.reranking import FastReranking, MultiFactor, ReciprocalNeighbours, Reranked


def fast(scores: np.ndarray, **options: Any) -> Reranked:
    """Fast re-ranking (FR) of DVSE: every score against all rivals in the other direction.

    Args:
        scores: Scores (images, captions), larger is better.
        **options: Those of `keras_xmr.reranking.FastReranking`, such as `preset="cub"`.

    Returns:
        The scores that rank captions for images, and those that rank images for captions.

    Raises:
        ValueError: If it is no matrix, or a score is NaN or infinite.
    """
    return FastReranking(**options)(scores)


def reciprocal_neighbours(scores: np.ndarray, **options: Any) -> Reranked:
    """Reciprocal-neighbour re-ranking (RR); see `keras_xmr.reranking.ReciprocalNeighbours`."""
    return ReciprocalNeighbours(**options)(scores)


def multi_factor(scores: np.ndarray, **options: Any) -> Reranked:
    """Multi-factor re-ranking (MR); see `keras_xmr.reranking.MultiFactor`."""
    return MultiFactor(**options)(scores)
