"""Plausible-Match R-Precision, from label vectors."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from keras_xmr.judgements import Judgements
from keras_xmr.judgements.ground_truth import GroundTruth
from keras_xmr.metrics.ranking import QueryMetrics, evaluate_direction, positive_ranks, summarize
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
    """Plausible-Match R-Precision of scores, in both directions.

    `pmrp_Z` is the R-Precision if pairs with label vectors that differ in at most Z entries are
    relevant, and `pmrp` the mean over Z = 0, 1, 2 (Chun et al. 2021, Sec. 4.1). A query without
    labels, or without any match, is not counted.

    Args:
        scores: Scores (images, captions).
        image_labels: Label vectors, sparse (images, labels); see `judgements.multi_hot`.
        caption_labels: Label vectors, sparse (captions, labels): those of their images.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    rows, columns = ScoreMatrices.of(scores).by_query
    i2t, i2t_summary = _direction(rows, image_labels, caption_labels)
    t2i, t2i_summary = _direction(columns, caption_labels, image_labels)
    return RetrievalMetrics(both_directions(i2t_summary, t2i_summary), i2t, t2i)


def match_by_labels(scores: ScoreMatrices, truth: GroundTruth) -> RetrievalMetrics | None:
    """`plausible_match` by the labels of a ground truth; None without labels."""
    if not truth.has_label_vectors:
        return None
    labels = truth.label_vectors()
    return plausible_match(scores, labels, labels[truth.caption_image])


def _direction(
    scores: np.ndarray, queries: scipy.sparse.csr_array, candidates: scipy.sparse.csr_array
) -> tuple[QueryMetrics, dict[str, float]]:
    values = {f"pmrp_{zeta}": np.empty(len(scores)) for zeta in ZETAS}
    positives = np.empty(len(scores), np.int64)
    for first in range(0, len(scores), _QUERIES):
        rows = slice(first, first + _QUERIES)
        for zeta in ZETAS:
            judgements = Judgements.from_labels(queries[rows], candidates, zeta)
            metrics_of_block = evaluate_direction(positive_ranks(scores[rows], judgements))
            values[f"pmrp_{zeta}"][rows] = metrics_of_block.values["r_precision"]
        positives[rows] = metrics_of_block.positives
    summary = summarize(values)
    if summary:
        summary["pmrp"] = float(np.mean(list(summary.values())))
    return QueryMetrics(values, positives), summary
