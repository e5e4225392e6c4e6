"""Metrics of retrieval, over a score matrix and judgements.

In a score matrix the rows are images and the columns captions; larger is better. Image-to-text
retrieval ranks the columns of a row, text-to-image retrieval the rows of a column.

Ties count against the model: among equal scores, wrong candidates rank before relevant ones. A
matrix of equal scores is thus never better than chance.

If not all pairs were judged, rankings are condensed to the judged ones (Sakai 2007): a pair that
was not judged is neither relevant nor wrong.

`Recall` is a metric of Keras, for `compile(metrics=...)`; it alone imports TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keras_xmr.metrics.chance import (
    TOO_FEW,
    Verdict,
    chance,
    chance_from_counts,
    chance_recall,
    rsum_difference,
    verdict,
)
from keras_xmr.metrics.label_matches import plausible_match
from keras_xmr.metrics.measure import (
    Measured,
    all_metrics,
    by_positives,
    mean_over_folds,
    measure,
    per_query,
    write_queries,
)
from keras_xmr.metrics.names import METRICS, RSUM, Metric, metric_names, metric_title
from keras_xmr.metrics.query_metrics import DiscountedGain, QueryMetric, ReciprocalRank
from keras_xmr.metrics.rank_counting import positive_ranks
from keras_xmr.metrics.ranking import QueryMetrics, binary_preference, evaluate_direction, ndcg_at
from keras_xmr.metrics.retrieval import (
    RetrievalMetrics,
    bpref,
    evaluate_scores,
    ndcg,
    recall,
    retrieval,
)
from keras_xmr.metrics.runs import from_run, to_run
from keras_xmr.metrics.score_matrices import (
    ScoreMatrices,
    Scores,
    ScoreTiles,
    mean_scores,
)
from keras_xmr.metrics.semantic import semantic_precision
from keras_xmr.metrics.whole_split import Retrieval

if TYPE_CHECKING:
    from keras_xmr.metrics.batch_recall import Recall
from keras_xmr.utils.directions import DIRECTIONS
from keras_xmr.utils.messages import no_attribute

__all__ = [
    "DIRECTIONS",
    "METRICS",
    "RSUM",
    "TOO_FEW",
    "DiscountedGain",
    "Measured",
    "Metric",
    "QueryMetric",
    "QueryMetrics",
    "Recall",
    "ReciprocalRank",
    "Retrieval",
    "RetrievalMetrics",
    "ScoreMatrices",
    "ScoreTiles",
    "Scores",
    "Verdict",
    "all_metrics",
    "binary_preference",
    "bpref",
    "by_positives",
    "chance",
    "chance_from_counts",
    "chance_recall",
    "evaluate_direction",
    "evaluate_scores",
    "from_run",
    "mean_over_folds",
    "mean_scores",
    "measure",
    "metric_names",
    "metric_title",
    "ndcg",
    "ndcg_at",
    "per_query",
    "plausible_match",
    "positive_ranks",
    "recall",
    "retrieval",
    "rsum_difference",
    "semantic_precision",
    "to_run",
    "verdict",
    "write_queries",
]


def __getattr__(name: str) -> Any:
    """Imports `Recall`, and Keras with it, on first use."""
    if name != "Recall":
        raise no_attribute(__name__, name, __all__)
    return import_module("keras_xmr.metrics.batch_recall").Recall
