"""Evaluates scores, or embeddings, of any model: no config, no training, no TensorFlow."""

from keras_xmr.external_scores.arrays import load_matrix, load_scores, similarity
from keras_xmr.external_scores.evaluate import ExternalScores, run

__all__ = [
    "ExternalScores",
    "load_matrix",
    "load_scores",
    "run",
    "similarity",
]
