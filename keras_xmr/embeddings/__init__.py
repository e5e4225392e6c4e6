"""The kinds of embedding, and distances between embeddings."""

from keras_xmr.embeddings.distributions import distribution
from keras_xmr.embeddings.kinds import (
    Embedding,
    Tensor,
    for_matching,
    kind,
    log_sigma,
    points,
    sample,
    sample_with_common_noise,
)

__all__ = [
    "Embedding",
    "Tensor",
    "distribution",
    "for_matching",
    "kind",
    "log_sigma",
    "points",
    "sample",
    "sample_with_common_noise",
]
