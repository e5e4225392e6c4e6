"""Whether a match probability of 0.7 is right 7 times of 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from keras_xmr.judgements import Judgements

BINS = 15

# Rows of scores that become probabilities at once.
_ROWS = 256


@dataclass(frozen=True, eq=False)
class Reliability:
    """Answers in bins of equal width of their probability (Guo et al. 2017).

    Attributes:
        count: How many answers each bin has (bins,).
        predicted: Their mean probability; NaN in an empty bin.
        observed: The share of them that is right; NaN in an empty bin.
    """

    count: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error (ECE): the mean gap of both, weighted by `count`."""
        gaps = np.nan_to_num(np.abs(self.predicted - self.observed))
        return float(np.sum(self.count * gaps) / max(self.count.sum(), 1))

    @property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The 95 % interval of `observed`, each answer counted as one of its own (Wilson 1927)."""
        count, z = np.maximum(self.count, 1), 1.96
        centre = (self.observed + z**2 / (2 * count)) / (1 + z**2 / count)
        spread = self.observed * (1 - self.observed) / count + z**2 / (4 * count**2)
        half = z * np.sqrt(spread) / (1 + z**2 / count)
        return centre - half, centre + half


def reliability(logits: np.ndarray, right: np.ndarray, bins: int = BINS) -> Reliability:
    """The reliability of some answers.

    Args:
        logits: Log-odds that each is right (answers,).
        right: Whether it is, bool (answers,).
        bins: How many bins.
    """
    return _of_sums(_sums(logits, right, bins))


def reliability_of_pairs(
    logits: np.ndarray, judgements: Judgements, bins: int = BINS
) -> Reliability:
    """The reliability of all pairs of images and captions.

    Args:
        logits: Log-odds of a match (images, captions), an array or a memory map.
        judgements: What is right.
        bins: How many bins.
    """
    sums = np.zeros((3, bins))
    for first in range(0, len(logits), _ROWS):
        rows = slice(first, first + _ROWS)
        right = judgements.grades[rows].toarray() > 0
        sums += _sums(np.ravel(logits[rows]), right.ravel(), bins)
    return _of_sums(sums)


def reliability_of_best(
    logits: np.ndarray, judgements: Judgements, bins: int = BINS
) -> Reliability:
    """The reliability of the first answer of each query.

    Args:
        logits: Log-odds of a match (queries, candidates).
        judgements: What is right, of the same shape.
        bins: How many bins.
    """
    best = np.argmax(logits, axis=1)
    queries = np.arange(len(best))
    right = np.asarray(judgements.grades[queries, best]).ravel() > 0
    return reliability(logits[queries, best], right, bins)


def _sums(logits: np.ndarray, right: np.ndarray, bins: int) -> np.ndarray:
    """Of each bin: how many answers, the sum of their probabilities, how many are right."""
    probability = expit(logits.astype(np.float64))
    place = np.minimum((probability * bins).astype(np.int64), bins - 1)
    weights = (None, probability, right.astype(np.float64))
    return np.stack([np.bincount(place, w, minlength=bins) for w in weights])


def _of_sums(sums: np.ndarray) -> Reliability:
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0].astype(np.int64), sums[1] / sums[0], sums[2] / sums[0])
