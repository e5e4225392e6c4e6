"""Re-ranking of the results of one query by captions that the index has stored.

Fast re-ranking (DVSE, Eq. 14) compares the score of a photo with those of all other captions of
the batch: a photo that matches every caption is ranked lower. For a single query, a sample of
training captions replaces the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keras_xmr.reranking.fast import FastReranking

RERANKERS = ("fast_reranking",)
"""The names of the re-rankers of a search."""

FIRST = 200
"""Number of top photos that are re-ranked."""

_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""In deviations of the scores of the sample."""


@dataclass(frozen=True)
class Reranking:
    """Fast re-ranking of one query, tuned on validation captions.

    Attributes:
        scale: lambda1 and lambda2 of `FastReranking`.
        before: The mean of recall at 1, 5 and 10 of validation captions without it, from 0 to 1.
        after: The same with it.
    """

    scale: float
    before: float
    after: float

    @property
    def sentence(self) -> str:
        """A sentence on its effect."""
        advice = ": the order without it is better" if self.after < self.before else ""
        return (
            "Re-ranked by stored captions of training. Of validation captions, this changes "
            f"the mean of recall at 1, 5 and 10 from {100 * self.before:.1f} to "
            f"{100 * self.after:.1f} %{advice}."
        )

    def order(self, scores: np.ndarray, sample_scores: np.ndarray) -> np.ndarray:
        """Returns the new order of photos.

        Args:
            scores: Scores of the query with photos (photos,), the best first.
            sample_scores: Scores of these photos with the sample (photos, captions).
        """
        return np.argsort(-reranked(scores, sample_scores, self.scale), kind="stable")


def reranked(scores: np.ndarray, sample_scores: np.ndarray, scale: float) -> np.ndarray:
    """Returns scores after fast re-ranking; see `FastReranking.rerank_query`."""
    reranker = FastReranking(lambda1=scale, lambda2=scale)
    return reranker.rerank_query(scores, sample_scores)


def tune(scores: np.ndarray, sample_scores: np.ndarray, right: np.ndarray) -> Reranking:
    """Tunes the scale by captions with known right photos, which are not in the sample.

    Args:
        scores: Scores (captions, photos).
        sample_scores: Scores (photos, sample).
        right: Bool (captions, photos).
    """
    unit = max(float(sample_scores.std(dtype=np.float64)), 1e-12)
    scales = [scale / unit for scale in _SCALES]
    recalls = {
        scale: mean_recall(reranked(scores, sample_scores, scale), right) for scale in scales
    }
    best = max(recalls, key=lambda scale: recalls[scale])
    return Reranking(best, mean_recall(scores, right), recalls[best])


def mean_recall(scores: np.ndarray, right: np.ndarray) -> float:
    """Returns the mean of recall at 1, 5 and 10 of captions that have a right photo."""
    return float(first_hits(scores, right).mean())


def first_hits(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns whether the top 1, 5 and 10 have a right photo, bool (captions that have one, 3)."""
    answerable = right.any(axis=1)
    order = np.argsort(-scores[answerable], axis=1, kind="stable")[:, :10]
    hits = np.take_along_axis(right[answerable], order, axis=1)
    return np.stack([hits[:, :k].any(axis=1) for k in (1, 5, 10)], axis=1)
