"""Calibration of match probabilities: a probability of 0.7 should be right 7 times of 10."""

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
        count: Number of answers per bin (bins,).
        predicted: Their mean probability; NaN in an empty bin.
        observed: The share of them that is relevant; NaN in an empty bin.
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
        """The 95 % interval of `observed`, with answers as independent (Wilson 1927)."""
        count, z = np.maximum(self.count, 1), 1.96
        centre = (self.observed + z**2 / (2 * count)) / (1 + z**2 / count)
        spread = self.observed * (1 - self.observed) / count + z**2 / (4 * count**2)
        half = z * np.sqrt(spread) / (1 + z**2 / count)
        return centre - half, centre + half


def reliability(logits: np.ndarray, right: np.ndarray) -> Reliability:
    """The reliability of some answers.

    Args:
        logits: Log-odds of a match (answers,).
        right: Whether each is relevant, bool (answers,).
    """
    return _from_sums(_sums(logits, right))


def reliability_of_pairs(logits: np.ndarray, judgements: Judgements) -> Reliability:
    """The reliability of all pairs of images and captions.

    Args:
        logits: Log-odds of a match (images, captions), an array or a memory map.
        judgements: The relevant pairs.
    """
    sums = np.zeros((3, BINS))
    for first in range(0, len(logits), _ROWS):
        rows = slice(first, first + _ROWS)
        right = judgements.grades[rows].toarray() > 0
        sums += _sums(np.ravel(logits[rows]), right.ravel())
    return _from_sums(sums)


def reliability_of_best(logits: np.ndarray, judgements: Judgements) -> Reliability:
    """The reliability of the first answer of each query.

    Args:
        logits: Log-odds of a match (queries, candidates).
        judgements: The relevant pairs, of the same shape.
    """
    best = np.argmax(logits, axis=1)
    queries = np.arange(len(best))
    right = np.asarray(judgements.grades[queries, best]).ravel() > 0
    return reliability(logits[queries, best], right)


def _sums(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Per bin: number of answers, sum of their probabilities, number of right ones."""
    probability = expit(logits.astype(np.float64))
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    weights = (None, probability, right.astype(np.float64))
    return np.stack([np.bincount(place, w, minlength=BINS) for w in weights])


def _from_sums(sums: np.ndarray) -> Reliability:
    with np.errstate(invalid="ignore"):
        return Reliability(sums[0].astype(np.int64), sums[1] / sums[0], sums[2] / sums[0])
