"""Searches the scales of fast re-ranking on a split that is not the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics import ScoreMatrices, Scores
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.reranking.fast import log_sums
from keras_xmr.utils.processors import in_threads
from keras_xmr.utils.progress import Progress

SCALES = (0.1, 0.2, 0.5, 1, 2, 5, 8, 10, 15, 20, 25, 30, 40, 50, 75, 100, 200, 500, 1000)
"""The grid of every scale: wide for log-odds and distances, close where cosines need it."""

_ROWS = 16


@dataclass(frozen=True)
class Setting:
    """A setting of the two scales of one direction, and its metrics.

    Attributes:
        sum_scale: gamma1 or lambda1; None without re-ranking.
        own_scale: gamma2 or lambda2; None without re-ranking.
        recalls: Recall at 1, 5 and 10, as fractions.
        reciprocal_rank: Mean of 1 / the rank of the first relevant item.
    """

    sum_scale: float | None
    own_scale: float | None
    recalls: tuple[float, ...]
    reciprocal_rank: float

    @property
    def worth(self) -> tuple[float, float]:
        """The criterion of the comparison: the sum of recalls, then the mean reciprocal rank."""
        return sum(self.recalls), self.reciprocal_rank


@dataclass(frozen=True)
class ScaleSearch:
    """Results of a grid search of the scales.

    Attributes:
        plain: For "gamma" (image-to-text) and "lambda" (text-to-image), without re-ranking.
        settings: For each of them all settings, the best first.
    """

    plain: dict[str, Setting]
    settings: dict[str, list[Setting]]


def search_scales(
    scores: Scores, judgements: Judgements, scales: Sequence[float] = SCALES
) -> ScaleSearch:
    """Tries all pairs of scales, separately for each direction.

    gamma1 and gamma2 are chosen by the image-to-text recalls, lambda1 and lambda2 by the
    text-to-image ones. Of equally good settings, the first of the grid is taken. The sums over
    rivals are computed once for each gamma1 and lambda1, and only the first relevant item of a
    query is ranked. Memory: a transposed copy of the scores.

    Args:
        scores: Scores (images, captions), float32 or float64.
        judgements: The relevant pairs.
        scales: The grid of every scale.

    Raises:
        ValueError: If the shapes differ, no image has a right caption, or a score is not finite.
    """
    scores = ScoreMatrices.of(scores)
    if scores.shape != judgements.shape:
        raise ValueError(f"scores of shape {scores.shape}, judgements of {judgements.shape}")
    if not judgements.grades.nnz:
        raise ValueError("no caption is right for any image: there is nothing to search by")
    plain, settings = {}, {}
    with Progress("  searching scales", 2 * len(scales) ** 2, "settings") as bar:
        for direction, matrix in zip(("gamma", "lambda"), scores.by_query, strict=True):
            if direction == "lambda":
                judgements = judgements.transpose()
            rows = np.ascontiguousarray(matrix)
            nothing = np.zeros(rows.shape[1], rows.dtype)
            plain[direction] = _setting(None, None, rows, nothing, judgements)
            candidates = []
            for sum_scale in scales:
                sums = log_sums(rows, {0: sum_scale})[0]
                for own_scale in scales:
                    offset = (sums / own_scale).astype(rows.dtype)
                    candidates.append(_setting(sum_scale, own_scale, rows, offset, judgements))
                    bar.update()
            settings[direction] = sorted(candidates, key=lambda s: s.worth, reverse=True)
    return ScaleSearch(plain, settings)


def _setting(
    sum_scale: float | None,
    own_scale: float | None,
    scores: np.ndarray,
    offset: np.ndarray,
    judgements: Judgements,
) -> Setting:
    ranks = _best_ranks(scores, offset, judgements)
    recalls = tuple(float(np.mean(ranks <= k)) for k in RECALL_AT)
    return Setting(sum_scale, own_scale, recalls, float(np.mean(1 / ranks)))


def _best_ranks(scores: np.ndarray, offset: np.ndarray, judgements: Judgements) -> np.ndarray:
    """Returns the rank of the first relevant item in scores - offset, of each query that has one.

    Among equal scores, wrong candidates rank before relevant ones, as in all metrics.
    """
    starts, columns = judgements.grades.indptr, judgements.grades.indices

    def rank(first: int) -> np.ndarray:
        tile = scores[first : first + _ROWS] - offset
        begin = starts[first : first + len(tile) + 1]
        counts = np.diff(begin)
        answered = np.flatnonzero(counts)
        query = np.repeat(np.arange(len(tile)), counts)
        right = tile[query, columns[begin[0] : begin[-1]]]
        best = np.full(len(tile), np.inf, tile.dtype)
        best[answered] = np.maximum.reduceat(right, begin[answered] - begin[0])
        ahead = np.array([np.count_nonzero(row) for row in tile >= best[:, None]])
        right_ones = np.bincount(query, right >= best[query], minlength=len(tile))
        return (ahead - right_ones + 1)[answered]

    return np.concatenate(in_threads(rank, len(scores), _ROWS))
