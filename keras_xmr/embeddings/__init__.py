"""The kinds of embedding, and distances between embeddings."""

from keras_xmr.embeddings.kinds import (
    Embedding,
    Tensor,
    as_distribution,
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
    "as_distribution",
    "for_matching",
    "kind",
    "log_sigma",
    "points",
    "sample",
    "sample_with_common_noise",
]
