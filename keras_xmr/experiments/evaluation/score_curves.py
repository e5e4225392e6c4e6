"""Curves that need only scores: PMRP against zeta, ASP against N, similarity within sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, Scores
from keras_xmr.metrics.label_matches import match_precision
from keras_xmr.metrics.semantic import ASP_TOP
from keras_xmr.utils.directions import DIRECTIONS, full_name
from keras_xmr.utils.vectors import Arrays, unit_rows

ZETAS = (0, 1, 2, 3, 4, 5, 6)

RANKED = 100
"""Number of ranks of the relevance by rank."""

_QUERIES = 1000


def plausible_match_by_zeta(
    scores: Scores, truth: GroundTruth, zetas: Sequence[int] = ZETAS
) -> dict[str, np.ndarray]:
    """Computes R-Precision if label vectors may differ in up to zeta entries (Wang et al., Fig. 7).

    Of more than 1,000 queries of a direction, 1,000 are drawn with a seed.

    Args:
        scores: Scores (images, captions).
        truth: The ground truth, with labels.
        zetas: The zetas.

    Returns:
        For each direction a value per zeta, and for "image_to_text chance" and "text_to_image
        chance" the value of a random order.
    """
    images = truth.label_vectors()
    captions = images[truth.caption_image]
    matrices = ScoreMatrices.of(scores)
    curves: dict[str, np.ndarray] = {}
    sides = (images, captions), (captions, images)
    for direction, (queries, candidates) in zip(DIRECTIONS, sides, strict=True):
        drawn = _draw_queries(queries.shape[0])
        ranked, labels = matrices.select_queries(direction, drawn), queries[drawn]
        matched = [match_precision(ranked, labels, candidates, zeta)[:2] for zeta in zetas]
        curves[direction], curves[f"{direction} chance"] = np.array(
            [list(map(_mean, m)) for m in matched]
        ).T
    return curves


def _draw_queries(count: int) -> np.ndarray:
    """Returns the numbers of at most 1,000 queries, ascending."""
    return np.sort(np.random.default_rng(0).permutation(count)[:_QUERIES])


def _mean(values: np.ndarray) -> float:
    """Returns the mean over the queries with a match; NaN without any."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else np.nan


def plausible_counts(truth: GroundTruth) -> dict[str, np.ndarray]:
    """Returns the number of relevant images per caption: Chun et al. 2021, Fig. 4, has examples.

    Args:
        truth: The ground truth.

    Returns:
        By the kind of judgements, such as "annotated", int (captions,).
    """
    counts = {"annotated": truth.judgements.transpose().counts()}
    for name, judgements in truth.extra.items():
        if judgements.caption_query_mask is None:
            counts[name] = judgements.transpose().counts()
    if truth.has_label_vectors:
        labels = truth.label_vectors()
        captions = labels[truth.caption_image]
        for zeta in (0, 1, 2):
            of_labels = Judgements.from_labels(labels, captions, zeta)
            counts[f"labels, zeta {zeta}"] = of_labels.transpose().counts()
    return counts


def relevance_by_rank(
    scores: Scores, relevance: np.ndarray, direction: str
) -> dict[str, np.ndarray]:
    """Returns the relevance at each rank, mean over queries (Li et al. 2022, Fig. 1c).

    Of more than 1,000 queries, 1,000 are drawn with a seed.

    Args:
        scores: Scores (images, captions).
        relevance: Of each pair, (images, captions).
        direction: `image_to_text` or `text_to_image`.

    Returns:
        For the order "by score", that "by relevance" and a "random" one, of the first `RANKED`.
    """
    by_query = relevance if direction == "image_to_text" else relevance.T
    drawn = _draw_queries(len(by_query))
    ranked, known = ScoreMatrices.of(scores).select_queries(direction, drawn), by_query[drawn]
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :RANKED]
    best = -np.sort(-known, axis=1)[:, :RANKED]
    return {
        "by score": np.take_along_axis(known, order, axis=1).mean(axis=0),
        "by relevance": best.mean(axis=0),
        "random": np.full(order.shape[1], known.mean()),
    }


def precision_by_top(summary: Mapping[str, float]) -> dict[str, list[tuple[int, float]]]:
    """Computes ASP of the first N by relevance (Li et al. 2022, Fig. 3), for every N that was
    measured.

    Args:
        summary: Metrics of a score matrix by name.

    Returns:
        For each direction pairs of N and ASP; empty without a relevance.
    """
    return {
        direction: [
            (n, summary[name])
            for n in ASP_TOP
            if (name := full_name(direction, f"asp_top_{n}")) in summary
        ]
        for direction in DIRECTIONS
    }


def set_correlation(points: np.ndarray) -> np.ndarray:
    """Returns the mean cosine of every two embeddings of a set.

    Wei et al. 2023, Fig. 6, has the correlation of one image: `figures.sets`.

    Args:
        points: Sets of embeddings (items, K, D).

    Returns:
        Float (K, K); off its diagonal, 1 is a collapsed set and 0 an orthogonal one.
    """
    unit = unit_rows(points)
    cosines: np.ndarray = np.einsum("nkd,nld->kl", unit, unit, dtype=np.float64) / len(points)
    return cosines


def set_similarity(embedding: Arrays) -> float | None:
    """Returns the mean cosine of two different embeddings of an item: 1 for a collapsed set.

    Args:
        embedding: The embedding of many items, with `points` (items, K, D).

    Returns:
        The mean over items and pairs; None without sets, or with a K of 1.
    """
    points = embedding.get("points")
    if points is None or (size := points.shape[1]) == 1:
        return None
    return float((set_correlation(points).sum() - size) / (size * (size - 1)))
