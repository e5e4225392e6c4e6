"""Evaluates scores, or embeddings, of any model: no config, no training, no TensorFlow."""

from keras_xmr.own_scores.arrays import load_matrix, load_scores, similarity
from keras_xmr.own_scores.evaluate import OwnScores, evaluate_own_scores, run

__all__ = [
    "OwnScores",
    "evaluate_own_scores",
    "load_matrix",
    "load_scores",
    "run",
    "similarity",
]
