"""From a model and the records of a split to metrics and a report."""

from keras_xmr.evaluation.embed import EmbeddedSplit, embed_captions, embed_images, embed_split
from keras_xmr.evaluation.evaluate import Evaluation, evaluate_split
from keras_xmr.evaluation.scoring import score_matrices, score_matrix

__all__ = [
    "EmbeddedSplit",
    "Evaluation",
    "embed_captions",
    "embed_images",
    "embed_split",
    "evaluate_split",
    "score_matrices",
    "score_matrix",
]
