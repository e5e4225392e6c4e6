"""Semantic relevance of captions to images, by the captions of the images: CIDEr and TF-IDF.

The package imports NumPy and SciPy alone.
"""

from keras_xmr.relevance.caption_words import TOKENIZERS, java_tokenize, ptb_tokenize
from keras_xmr.relevance.matrix import (
    BatchRelevance,
    RelevanceMatrix,
    cider,
    cider_d,
    relevance_matrix,
    tf_idf,
)
from keras_xmr.relevance.ngram_weights import (
    NGrams,
    WeightedCaptions,
    average_references,
    count_ngrams,
    reference_groups,
    weigh,
)

__all__ = [
    "TOKENIZERS",
    "BatchRelevance",
    "NGrams",
    "RelevanceMatrix",
    "WeightedCaptions",
    "average_references",
    "cider",
    "cider_d",
    "count_ngrams",
    "java_tokenize",
    "ptb_tokenize",
    "reference_groups",
    "relevance_matrix",
    "tf_idf",
    "weigh",
]
