"""Search of a folder of photos by the model of a finished run.

Opening an index, and everything but embedding, needs no TensorFlow.
"""

from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.search.photo_table import Photo
from keras_xmr.search.query import (
    MAX_COUNT,
    MAX_PARTS,
    MAX_TEXT,
    Filters,
    Hit,
    PredictionSet,
    Query,
    QueryError,
    SearchResult,
)
from keras_xmr.search.search import Searcher

__all__ = [
    "MAX_COUNT",
    "MAX_PARTS",
    "MAX_TEXT",
    "Filters",
    "Hit",
    "Photo",
    "PhotoIndex",
    "PredictionSet",
    "Query",
    "QueryError",
    "SearchResult",
    "Searcher",
]
