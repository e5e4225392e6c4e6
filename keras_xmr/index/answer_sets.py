"""How many of the photos that a search finds are to be believed, with a promise.

Split conformal prediction (Vovk et al. 2005; Angelopoulos and Bates 2023), calibrated on captions
of the validation split. Every score is first held against those of a fixed set of other photos,
the reference: how many of their standard deviations it lies above their mean. That does not
change how photos of one query are ranked, and makes scores of different queries comparable.

**The answer set.** Of a validation caption, take the score down to which at least `SHARE` of its
right photos lie. The cut-off is a low quantile of these. A new caption has at least that share of
its right photos above the cut-off with probability `CONFIDENCE`. Whether a right photo lies above
the cut-off depends on it, the caption and the reference alone, not on what else is in the
gallery: so the promise does not hang on the size of the gallery. How many photos the set has
does.

Captions of one photo are not independent. They share one weight (hierarchical conformal
prediction, Lee, Barber and Willett 2023, section 3), and what counts is the number of photos.

All of this is marginal: it holds on the average over captions like those of the validation split
and over validation splits, not for a single caption nor for every kind of them; and exchangeable:
it says nothing of queries or photos of another kind. Where right photos are shared by captions,
as in an exhaustive truth, and where the validation split chose the model, it is approximate, and
was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

SHARE, CONFIDENCE = 0.8, 0.9


@dataclass(frozen=True)
class AnswerSets:
    """The cut-offs of a model, calibrated on its validation split.

    Attributes:
        cutoff: Above it lies at least `share` of the right photos; in deviations of the reference.
        queries: How many captions calibrated.
        groups: How many photos these captions were written for.
        share: The part of the right photos that is promised.
        confidence: For what part of the captions.
    """

    cutoff: float
    queries: int
    groups: int
    share: float = SHARE
    confidence: float = CONFIDENCE

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AnswerSets:
        """From what `as_dict` gave."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in names})


def calibrate(
    scores: np.ndarray,
    right: np.ndarray,
    groups: np.ndarray,
    share: float = SHARE,
    confidence: float = CONFIDENCE,
) -> AnswerSets:
    """Calibrates on queries whose right photos are known.

    Args:
        scores: Standardised scores (queries, photos).
        right: Bool (queries, photos); queries without a right photo are left out.
        groups: What is not independent has the same number: the photo that each query was
            written for, int (queries,).
        share: The part of the right photos of a query that is promised.
        confidence: For what part of the queries.
    """
    asked = right.any(axis=1)
    scores, right, groups = scores[asked], right[asked], groups[asked]
    weights = group_weights(groups)
    ranked = -np.sort(np.where(right, -scores, np.inf), axis=1)
    last = np.ceil(share * right.sum(axis=1) - 1e-9).astype(int) - 1
    reached = ranked[np.arange(len(ranked)), last]
    return AnswerSets(
        cutoff=low_quantile(reached, weights, 1.0 - confidence),
        queries=len(scores),
        groups=len(np.unique(groups)),
        share=share,
        confidence=confidence,
    )


def group_weights(groups: np.ndarray) -> np.ndarray:
    """1 / (groups + 1), shared by the members of each group; what is left is that of a new one."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return 1.0 / (len(counts) + 1) / counts[number]


def low_quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The largest cut-off below which a new value lies with at most a probability of `level`.

    The new value may be as low as it likes: its own weight is counted below all others. Where
    that alone is more than the level, too few calibrate, and the cut-off is -inf.
    """
    order = np.argsort(values)
    below = 1.0 - weights.sum() + np.concatenate([[0.0], np.cumsum(weights[order])])[:-1]
    allowed = np.flatnonzero(below <= level + 1e-12)
    return float(values[order][allowed[-1]]) if len(allowed) else -np.inf


def standardise(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Scores in deviations of the reference.

    Args:
        scores: (queries, photos).
        reference: Scores of the same queries with the photos of the reference (queries, R).
    """
    mean, deviation = centre_and_scale(reference)
    return (scores - mean[:, None]) / deviation[:, None]


def centre_and_scale(reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (queries,) of scores with the reference (queries, R)."""
    deviation = reference.std(axis=1, dtype=np.float64)
    return reference.mean(axis=1, dtype=np.float64), np.maximum(deviation, 1e-12)
