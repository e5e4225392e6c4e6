"""From a score matrix to better ones. One file a family of re-rankers.

A re-ranker knows nothing but the scores, so it follows any matcher. It looks at all queries at
once: what one query finds depends on the other queries (it is transductive). Figures that are
re-ranked must say so, and are not to be compared with plain ones.
"""

from keras_xmr.reranking.base import Reranked, Reranker
from keras_xmr.reranking.fast import FastReranking
from keras_xmr.reranking.measure import build_rerankers, measure_reranked
from keras_xmr.reranking.neighbours import MultiFactor, ReciprocalNeighbours

__all__ = [
    "FastReranking",
    "MultiFactor",
    "ReciprocalNeighbours",
    "Reranked",
    "Reranker",
    "build_rerankers",
    "measure_reranked",
]
