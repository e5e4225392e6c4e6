"""Conformal prediction sets of the results of a search, with a coverage guarantee.

Split conformal prediction (Vovk et al. 2005; Angelopoulos and Bates 2023), calibrated on captions
of the validation split. Every score is first standardised by the scores of a fixed
set of other photos, the reference: in their standard deviations above their mean. That does not
change how photos of one query are ranked, and makes scores of different queries comparable.

**The prediction set.** Of a validation caption, take the score that at least `SHARE` of its right
photos reach. The cut-off is a low quantile of these. A new caption has at least `SHARE` of
its right photos above the cut-off with probability `CONFIDENCE`. Whether a right photo lies above
the cut-off depends on it, the caption and the reference alone, not on other photos of the
gallery: the coverage guarantee does not depend on the size of the gallery. The size of the set
does.

Captions of one photo are not independent. They share one weight (hierarchical conformal
prediction, Lee, Barber and Willett 2023, section 3), and the number of photos is the sample size.

All of this is marginal: it holds on the average over captions as in the validation split
and over validation splits, not for a single caption nor for every kind of them; and exchangeable:
it says nothing of queries or photos of another kind. Where right photos are shared by captions,
as in an exhaustive truth, and where the validation split chose the model, it is approximate, and
was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHARE, CONFIDENCE = 0.8, 0.9


@dataclass(frozen=True)
class PredictionSets:
    """The cut-offs of a model, calibrated on its validation split.

    Attributes:
        cutoff: Above it lies at least `share` of the right photos; in deviations of the reference.
        queries: Number of captions in the calibration.
        groups: Number of photos of these captions.
        share: The guaranteed share of the right photos.
        confidence: The share of captions with that guarantee.
    """

    cutoff: float
    queries: int
    groups: int
    share: float = SHARE
    confidence: float = CONFIDENCE


def calibrate(scores: np.ndarray, right: np.ndarray, groups: np.ndarray) -> PredictionSets:
    """Calibrates on queries with known relevant photos.

    Args:
        scores: Standardised scores (queries, photos).
        right: Bool (queries, photos); queries without a right photo are left out.
        groups: The photo that each query was written for, int (queries,): queries with the same
            number are not independent.
    """
    answerable = right.any(axis=1)
    scores, right, groups = scores[answerable], right[answerable], groups[answerable]
    weights = group_weights(groups)
    ranked = -np.sort(np.where(right, -scores, np.inf), axis=1)
    last = np.ceil(SHARE * right.sum(axis=1) - 1e-9).astype(int) - 1
    reached = ranked[np.arange(len(ranked)), last]
    return PredictionSets(
        cutoff=low_quantile(reached, weights, 1.0 - CONFIDENCE),
        queries=len(scores),
        groups=len(np.unique(groups)),
    )


def group_weights(groups: np.ndarray) -> np.ndarray:
    """Returns 1 / (groups + 1), shared by the members of a group; a new one has the rest."""
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return 1.0 / (len(counts) + 1) / counts[number]


def low_quantile(values: np.ndarray, weights: np.ndarray, level: float) -> float:
    """Returns the largest cut-off below which a new value lies with a probability <= `level`.

    The new value may be arbitrarily low: its weight is counted below all others. If that alone
    exceeds the level, there are too few queries, and the cut-off is -inf.
    """
    order = np.argsort(values)
    below = 1.0 - weights.sum() + np.concatenate([[0.0], np.cumsum(weights[order])])[:-1]
    allowed = np.flatnonzero(below <= level + 1e-12)
    return float(values[order][allowed[-1]]) if len(allowed) else -np.inf


def standardise(scores: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Returns scores in deviations of the reference.

    Args:
        scores: (queries, photos).
        reference: Scores of the same queries with the photos of the reference (queries, R).
    """
    mean, deviation = centre_and_scale(reference)
    return (scores - mean[:, None]) / deviation[:, None]


def centre_and_scale(reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation (queries,) of scores with the reference (queries, R)."""
    deviation = reference.std(axis=1, dtype=np.float64)
    return reference.mean(axis=1, dtype=np.float64), np.maximum(deviation, 1e-12)
