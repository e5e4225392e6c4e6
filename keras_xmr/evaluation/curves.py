"""Curves that need only scores: PMRP against zeta, ASP against N, how alike a set's parts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse

from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import evaluate_direction, positive_ranks
from keras_xmr.metrics.names import METRICS
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores

ZETAS = (0, 1, 2, 3, 4, 5, 6)

_QUERIES = 1000


def plausible_match_by_zeta(
    scores: Scores, truth: GroundTruth, zetas: Sequence[int] = ZETAS
) -> dict[str, np.ndarray]:
    """R-Precision if label vectors may differ in up to zeta entries (Wang et al., Fig. 7).

    Of more than 1,000 queries of a direction, so many are drawn with a seed.

    Args:
        scores: Scores (images, captions).
        truth: What is known, with labels.
        zetas: The zetas.

    Returns:
        For "i2t" and "t2i" a value of each zeta; and for "i2t chance" and "t2i chance" that of
        a random order.
    """
    images = truth.label_vectors()
    captions = images[truth.caption_image]
    matrices = ScoreMatrices.of(scores)
    everyone = [np.arange(count) for count in matrices.shape]
    some = [np.sort(np.random.default_rng(0).permutation(own)[:_QUERIES]) for own in everyone]
    i2t, _ = matrices.select(some[0], everyone[1]).by_query
    _, t2i = matrices.select(everyone[0], some[1]).by_query
    found: dict[str, np.ndarray] = {}
    for side, ranked, own, others in (
        ("i2t", i2t, images[some[0]], captions),
        ("t2i", t2i, captions[some[1]], images),
    ):
        values = np.array([_precision(ranked, own, others, zeta) for zeta in zetas])
        found[side], found[f"{side} chance"] = values.T
    return found


def _precision(
    scores: np.ndarray,
    queries: scipy.sparse.csr_array,
    candidates: scipy.sparse.csr_array,
    zeta: int,
) -> tuple[float, float]:
    """R-Precision, and that of a random order: the share of candidates that are right."""
    judgements = Judgements.from_labels(queries, candidates, zeta)
    values = evaluate_direction(positive_ranks(scores, judgements)).values["r_precision"]
    counts = judgements.counts()
    if not counts.any():
        return np.nan, np.nan
    return float(np.nanmean(values)), float(counts[counts > 0].mean() / scores.shape[1])


def precision_by_top(summary: Mapping[str, float]) -> dict[str, list[tuple[int, float]]]:
    """ASP of the first N by relevance (Li et al. 2022, Fig. 4), for every N that was measured.

    Args:
        summary: Metrics of a score matrix by name.

    Returns:
        For "i2t" and "t2i" pairs of N and ASP; empty without a relevance.
    """
    tops = [name for name in METRICS if name.startswith("asp_top_")]
    return {
        side: [
            (int(name.rpartition("_")[2]), summary[f"{side}_{name}"])
            for name in tops
            if f"{side}_{name}" in summary
        ]
        for side in ("i2t", "t2i")
    }


def set_correlation(points: np.ndarray) -> np.ndarray:
    """Mean cosine of every two embeddings of a set (Wei et al. 2023, Fig. 6).

    Args:
        points: Sets of embeddings (items, K, D).

    Returns:
        Float (K, K); off its diagonal, 1 is a collapsed set and 0 an orthogonal one.
    """
    norms = np.linalg.norm(points, axis=2, keepdims=True)
    unit = points / np.maximum(norms, 1e-12)
    found: np.ndarray = np.einsum("nkd,nld->kl", unit, unit, dtype=np.float64) / len(points)
    return found
