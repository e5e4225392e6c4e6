"""Metrics of retrieval, over a score matrix and judgements.

In a score matrix the rows are images and the columns captions; larger is better. Image-to-text
retrieval ranks the columns of a row, text-to-image retrieval the rows of a column.

Ties count against the model: among equal scores, what is wrong stands before what is right. A
matrix of equal scores is thus never better than chance.
"""

from keras_xmr.metrics.ranking import (
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

__all__ = [
    "QueryMetrics",
    "Ranks",
    "RetrievalMetrics",
    "evaluate_direction",
    "evaluate_folds",
    "evaluate_scores",
    "fold_members",
    "positive_ranks",
    "summarize",
]
