"""Evaluates scores, or embeddings, of any model: no config, no training, no TensorFlow."""

from keras_xmr.external_scores.arrays import load_matrix, load_scores, similarity
from keras_xmr.external_scores.evaluate import ExternalScores, evaluate_external_scores, run

__all__ = [
    "ExternalScores",
    "evaluate_external_scores",
    "load_matrix",
    "load_scores",
    "run",
    "similarity",
]
