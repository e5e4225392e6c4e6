"""Plausible-Match R-Precision (PMRP), by the labels of images."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from keras_xmr.judgements import Judgements
from keras_xmr.judgements.ground_truth import GroundTruth
from keras_xmr.metrics.rank_counting import positive_ranks
from keras_xmr.metrics.ranking import QueryMetrics, evaluate_direction, summarize
from keras_xmr.metrics.retrieval import RetrievalMetrics, both_directions
from keras_xmr.metrics.score_matrices import ScoreMatrices, Scores

ZETAS = (0, 1, 2)

# Millions of pairs match plausibly, so the queries are judged in blocks.
_QUERIES = 1024


def plausible_match(
    scores: Scores,
    image_labels: scipy.sparse.csr_array,
    caption_labels: scipy.sparse.csr_array,
) -> RetrievalMetrics:
    """Computes Plausible-Match R-Precision of scores, in both directions.

    `pmrp_Z` is the R-Precision if pairs with label vectors that differ in at most Z entries are
    relevant, and `pmrp` the mean over Z = 0, 1, 2 (Chun et al. 2021, Sec. 4.1). As in the released
    program, items without labels are neither queries nor candidates: the others are ranked without
    them. A query without any match is not counted.

    Args:
        scores: Scores (images, captions).
        image_labels: Label vectors, sparse (images, labels); see `judgements.multi_hot`.
        caption_labels: Label vectors of their images, sparse (captions, labels).

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    rows, columns = ScoreMatrices.of(scores).by_query
    i2t, i2t_summary = _match_direction(rows, image_labels, caption_labels)
    t2i, t2i_summary = _match_direction(columns, caption_labels, image_labels)
    return RetrievalMetrics(both_directions(i2t_summary, t2i_summary), i2t, t2i)


def match_by_labels(scores: ScoreMatrices, truth: GroundTruth) -> RetrievalMetrics | None:
    """Returns `plausible_match` by the labels of a ground truth; None without labels."""
    if not truth.has_label_vectors:
        return None
    labels = truth.label_vectors()
    return plausible_match(scores, labels, labels[truth.caption_image])


def _match_direction(
    scores: np.ndarray, queries: scipy.sparse.csr_array, candidates: scipy.sparse.csr_array
) -> tuple[QueryMetrics, dict[str, float]]:
    values, chance = ({f"pmrp_{zeta}": np.empty(len(scores)) for zeta in ZETAS} for _ in range(2))
    positives = np.empty(len(scores), np.int64)
    for first in range(0, len(scores), _QUERIES):
        rows = slice(first, first + _QUERIES)
        for zeta in ZETAS:
            matched = match_precision(scores[rows], queries[rows], candidates, zeta)
            name = f"pmrp_{zeta}"
            values[name][rows], chance[name][rows], positives[rows] = matched
    summary = summarize(values)
    if summary:
        summary["pmrp"] = float(np.mean(list(summary.values())))
    return QueryMetrics(values, positives, chance=chance), summary


def match_precision(
    scores: np.ndarray,
    queries: scipy.sparse.csr_array,
    candidates: scipy.sparse.csr_array,
    zeta: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes R-Precision of plausible matches, its mean over random orders, and their number.

    Args:
        scores: Scores (queries, candidates).
        queries: Label vectors, sparse (queries, labels).
        candidates: Label vectors, sparse (candidates, labels).
        zeta: The number of entries in which label vectors of a match may differ.

    Returns:
        Three arrays (queries,); the first two are NaN for a query without a match.
    """
    known = np.flatnonzero(candidates.sum(axis=1))
    if len(known) < candidates.shape[0]:
        scores, candidates = np.asarray(scores)[:, known], candidates[known]
    judgements = Judgements.from_labels(queries, candidates, zeta)
    metrics = evaluate_direction(positive_ranks(scores, judgements))
    counts = judgements.counts()
    at_random = np.where(counts > 0, counts / max(len(known), 1), np.nan)
    return metrics.values["r_precision"], at_random, counts
