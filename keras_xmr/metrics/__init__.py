"""Metrics of retrieval, over a score matrix and judgements.

In a score matrix the rows are images and the columns captions; larger is better. Image-to-text
retrieval ranks the columns of a row, text-to-image retrieval the rows of a column.

Ties count against the model: among equal scores, what is wrong stands before what is right. A
matrix of equal scores is thus never better than chance.
"""

from keras_xmr.metrics.breakdown import PositivesBin, by_positives
from keras_xmr.metrics.chance import Verdict, chance, verdict
from keras_xmr.metrics.files import write_queries
from keras_xmr.metrics.measure import Measured, all_metrics, mean_over_folds, measure
from keras_xmr.metrics.names import COUNTS, metric_names
from keras_xmr.metrics.plausible_match import plausible_match
from keras_xmr.metrics.ranking import (
    PRECISION_AT,
    QueryMetrics,
    Ranks,
    evaluate_direction,
    positive_ranks,
    summarize,
)
from keras_xmr.metrics.retrieval import (
    RetrievalMetrics,
    evaluate_folds,
    evaluate_scores,
    fold_members,
)
from keras_xmr.metrics.semantic import semantic_precision
from keras_xmr.metrics.tables import (
    Table,
    cell,
    judgements_title,
    measured_tables,
    metric_title,
    reranked_title,
)

__all__ = [
    "COUNTS",
    "PRECISION_AT",
    "Measured",
    "PositivesBin",
    "QueryMetrics",
    "Ranks",
    "RetrievalMetrics",
    "Table",
    "Verdict",
    "all_metrics",
    "by_positives",
    "cell",
    "chance",
    "evaluate_direction",
    "evaluate_folds",
    "evaluate_scores",
    "fold_members",
    "judgements_title",
    "mean_over_folds",
    "measure",
    "measured_tables",
    "metric_names",
    "metric_title",
    "plausible_match",
    "positive_ranks",
    "reranked_title",
    "semantic_precision",
    "summarize",
    "verdict",
    "write_queries",
]
