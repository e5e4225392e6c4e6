"""The kinds of embedding, and distances between embeddings."""

from keras_xmr.embeddings.distributions import distribution
from keras_xmr.embeddings.kinds import (
    Embedding,
    Gaussian,
    Point,
    PointSet,
    Tensor,
    Tokens,
    for_matching,
    kind,
    log_sigma,
    points,
)
from keras_xmr.embeddings.samples import sample, sample_with_common_noise

__all__ = [
    "Embedding",
    "Gaussian",
    "Point",
    "PointSet",
    "Tensor",
    "Tokens",
    "distribution",
    "for_matching",
    "kind",
    "log_sigma",
    "points",
    "sample",
    "sample_with_common_noise",
]
