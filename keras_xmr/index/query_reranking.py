"""Re-ranking of what one query has found, against captions that the index has stored.

Fast re-ranking (DVSE, Eq. 14) holds the score of a photo against those that all other captions of
the batch have with it: a photo that fits every caption comes later. One query has no batch. Its
place takes a sample of training captions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keras_xmr.reranking.fast import FastReranking

RERANKERS = ("fast_reranking",)
"""The names of the re-rankers of a search."""

FIRST = 200
"""So many photos are re-ranked, the first by the matcher."""

_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""In deviations of the scores of the sample."""


@dataclass(frozen=True)
class Reranking:
    """Fast re-ranking of one query, as validation has found it best.

    Attributes:
        scale: lambda1 and lambda2 of `FastReranking`.
        before: The mean of recall at 1, 5 and 10 of validation captions without it, from 0 to 1.
        after: The same with it.
    """

    scale: float
    before: float
    after: float

    def as_dict(self) -> dict[str, float]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Reranking:
        """From what `as_dict` gave."""
        return cls(**content)

    @property
    def sentence(self) -> str:
        """What it is worth, for people."""
        return (
            "Re-ranked against stored captions of training. Of validation captions, this changes "
            f"the mean of recall at 1, 5 and 10 from {100 * self.before:.1f} to "
            f"{100 * self.after:.1f} %."
        )

    def order(self, scores: np.ndarray, of_sample: np.ndarray) -> np.ndarray:
        """Which photo comes first, second and so on.

        Args:
            scores: Scores of the query with photos (photos,), the best first.
            of_sample: Scores of these photos with the sample (photos, captions).
        """
        return np.argsort(-reranked(scores, of_sample, self.scale), kind="stable")


def reranked(scores: np.ndarray, of_sample: np.ndarray, scale: float) -> np.ndarray:
    """Scores after fast re-ranking; see `FastReranking.rerank_query`."""
    reranker = FastReranking(lambda1=scale, lambda2=scale)
    return reranker.rerank_query(scores, of_sample)


def tune(scores: np.ndarray, of_sample: np.ndarray, right: np.ndarray) -> Reranking:
    """The best scale by captions whose right photos are known, none of which is in the sample.

    Args:
        scores: Scores (captions, photos).
        of_sample: Scores (photos, sample).
        right: Bool (captions, photos).
    """
    unit = max(float(of_sample.std(dtype=np.float64)), 1e-12)
    scales = [scale / unit for scale in _SCALES]
    found = {scale: mean_recall(reranked(scores, of_sample, scale), right) for scale in scales}
    best = max(found, key=lambda scale: found[scale])
    return Reranking(best, mean_recall(scores, right), found[best])


def mean_recall(scores: np.ndarray, right: np.ndarray) -> float:
    """The mean of recall at 1, 5 and 10 of captions (captions, photos) that have a right photo."""
    return float(first_hits(scores, right).mean())


def first_hits(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether a right photo is among the first 1, 5 and 10, bool (captions that have one, 3)."""
    asked = right.any(axis=1)
    order = np.argsort(-scores[asked], axis=1, kind="stable")[:, :10]
    hits = np.take_along_axis(right[asked], order, axis=1)
    return np.stack([hits[:, :k].any(axis=1) for k in (1, 5, 10)], axis=1)
