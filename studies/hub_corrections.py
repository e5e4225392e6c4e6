"""Corrections for hubs: their settings, the scores after one, and the places of right items."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from keras_xmr.reranking import (
    CSLS,
    FastReranking,
    InvertedSoftmax,
    QueryBankNormalization,
    Reranked,
    ScoreBank,
)

_TEMPERATURES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
ROUNDS = (1, 2, 5, 20)
DOSES = (0.25, 0.5, 0.75, 1.5)
"""Shares of CSLS."""

CORRECTIONS: dict[str, Sequence[tuple[float, ...]]] = {
    "none": [()],
    "CSLS, bank": [(5,), (20,), (80,)],
    "CSLS, test items": [(5,), (20,), (80,)],
    "inverted softmax, bank": [(t,) for t in _TEMPERATURES],
    "QB-Norm, bank": [(t,) for t in _TEMPERATURES],
    "fast re-ranking, test items": list(product(_TEMPERATURES, (0.5, 1))),
    **{
        f"Sinkhorn, test items, {n} round{'s' * (n > 1)}": [(t,) for t in _TEMPERATURES]
        for n in ROUNDS
    },
}
"""By name the settings that are tried: a number of neighbours; or a temperature in standard
deviations of the scores on dev, and a weight of a score."""


@dataclass
class Scored:
    """Scores of a split, larger is better.

    Attributes:
        scores: Scores of photos and captions (N, M).
        bank: Scores of the training items with both.
    """

    scores: np.ndarray
    bank: ScoreBank


def correct(name: str, setting: Sequence[float], scored: Scored, unit: float) -> Reranked:
    """Scores after a correction, of captions for images and of images for captions.

    Args:
        name: A key of `CORRECTIONS`.
        setting: One of its settings; of CSLS a share of the correction may follow.
        scored: The scores.
        unit: The standard deviation of scores on dev.
    """
    scores = scored.scores
    bank = scored.bank if "bank" in name else None
    if name == "none":
        return Reranked(scores, scores)
    if name.startswith("CSLS"):
        found = CSLS(bank, neighbours=int(setting[0]))(scores)
        share = setting[1] if len(setting) > 1 else 1.0
        return Reranked(*(scores + share * (side - scores) for side in found))
    temperature = setting[0] * unit
    if name.startswith("Sinkhorn"):
        matched = sinkhorn(scores / temperature, int(name.split()[-2]))
        return Reranked(matched, matched)
    if name.startswith("inverted"):
        return InvertedSoftmax(bank, temperature=temperature)(scores)
    if name.startswith("QB"):
        return QueryBankNormalization(bank, temperature=temperature)(scores)
    first, second = 1 / temperature, setting[1] / temperature
    return FastReranking(gamma1=first, gamma2=second, lambda1=first, lambda2=second)(scores)


def sinkhorn(logits: np.ndarray, rounds: int) -> np.ndarray:
    """Logarithms of a coupling in which every photo, and every caption, has an equal share.

    Rows and columns are normalised in turn (Sinkhorn and Knopp 1967); (N, M).
    """
    kernel = np.exp(logits.astype(np.float64) - logits.max())
    columns = np.ones(kernel.shape[1])
    for _ in range(rounds):
        rows = 1 / (kernel @ columns)
        columns = 1 / (rows @ kernel)
    matched: np.ndarray = logits + np.log(rows)[:, None] + np.log(columns)
    return matched


def places(found: Reranked, caption_image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each photo and each caption 0 for rank 1, 1 to rank 5, 2 to rank 10, or else 3."""
    scores, own = found.text_to_image, (caption_image, np.arange(len(caption_image)))
    t2i = (scores >= scores[own]).sum(axis=0)
    scores = found.image_to_text
    best = np.full(len(scores), -np.inf, scores.dtype)
    np.maximum.at(best, caption_image, scores[own])
    i2t = (scores >= best[:, None]).sum(axis=1)
    i2t, t2i = (np.searchsorted([1, 5, 10], side) for side in (i2t, t2i))
    return i2t, t2i


def rsum(i2t: np.ndarray, t2i: np.ndarray) -> float:
    """The sum of R@1, R@5 and R@10 of both directions, in percent."""
    return 100 * float((3 - i2t).mean() + (3 - t2i).mean())


def choose(name: str, dev: Scored, caption_image: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """The largest sum of recalls on dev, and the setting that has it."""
    unit = float(dev.scores.std())
    found = (
        (rsum(*places(correct(name, setting, dev, unit), caption_image)), setting)
        for setting in CORRECTIONS[name]
    )
    return max(found, key=lambda each: each[0])


def read_lines(path: Path) -> list[dict[str, str]]:
    """Reads the results; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
