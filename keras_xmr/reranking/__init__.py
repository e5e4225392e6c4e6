"""Re-ranking of a score matrix, with a file per family of re-rankers; NumPy and SciPy alone.

A re-ranker reads the scores alone, so it follows any matcher: `FastReranking()(scores)`. It is
transductive: the ranking of a query depends on the other queries. Re-ranked figures must be
labelled so, and must not be compared with others. With a `ScoreBank` of other queries, `CSLS`,
`InvertedSoftmax` and `QueryBankNormalization` rank every query without the others.
"""

from keras_xmr.reranking.base import Reranked, Reranker
from keras_xmr.reranking.fast import FastReranking
from keras_xmr.reranking.hubs import (
    CSLS,
    InvertedSoftmax,
    QueryBankNormalization,
    ScoreBank,
)
from keras_xmr.reranking.neighbours import MultiFactor, ReciprocalNeighbours
from keras_xmr.reranking.reranked_metrics import build_rerankers, measure_reranked

__all__ = [
    "CSLS",
    "FastReranking",
    "InvertedSoftmax",
    "MultiFactor",
    "QueryBankNormalization",
    "ReciprocalNeighbours",
    "Reranked",
    "Reranker",
    "ScoreBank",
    "build_rerankers",
    "measure_reranked",
]
