"""Ties: pairs that a score matrix cannot rank."""

from __future__ import annotations

import numpy as np

from keras_xmr.metrics.score_matrices import ScoreMatrices

TIED_LIMIT = 0.02
"""Largest share of tied pairs without a warning."""

_QUERIES = 200
_QUERIES_OF_TILES = 6


def tied_share(scores: ScoreMatrices) -> float:
    """Share of pairs whose score another candidate of the same query has, to the last digit.

    The smaller one of both directions: a duplicate caption or image ties its pairs in one direction
    alone, while a score that saturates ties them in both. Of many queries, 200 evenly spread ones
    count.

    Args:
        scores: Scores (images, captions).
    """
    images, captions = (np.arange(count) for count in scores.shape)
    count = _QUERIES if scores.is_dense else _QUERIES_OF_TILES
    by_image, _ = scores.select(_spread(images, count), captions).by_query
    _, by_caption = scores.select(images, _spread(captions, count)).by_query
    return min(_tied(by_image), _tied(by_caption))


def tie_warning(name: str, share: float) -> str | None:
    """A warning about a matcher that ties many pairs; None for few."""
    if share <= TIED_LIMIT:
        return None
    return (
        f"{name} ties {100 * share:.0f} % of the pairs with another candidate of the same query, "
        "so its ranks there are arbitrary: scores saturate, or embeddings have collapsed."
    )


def _spread(items: np.ndarray, count: int) -> np.ndarray:
    chosen = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return items[chosen]


def _tied(scores: np.ndarray) -> float:
    """Share of the scores (queries, candidates) that occur twice in their row."""
    if not scores.size:
        return 0.0
    ordered = np.sort(scores, axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    tied = np.zeros(ordered.shape, bool)
    tied[:, 1:] |= same
    tied[:, :-1] |= same
    return float(tied.mean())
