"""The regularizer that spreads embeddings."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.option_types import PositiveFloat, PositiveInt
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.base import Loss, Relations


@keras.saving.register_keras_serializable(package="keras_xmr")
class Uniformity(Loss):
    """log mean exp(-t |x - y|^2) over all pairs of vectors of both modalities.

    Wang and Isola 2020, as Chun et al. 2021 use it. The vectors are the samples, where the
    matcher draws some, the points of sets, and the means elsewhere.

    Args:
        temperature: t.
        max_vectors: The released code draws 128 of the vectors, with replacement, where there
            are more; here all are taken (null), or this many, evenly spread over the batch.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("uniformity",)
    NEEDS = ("gaussian", "point", "set")
    READS_SCORES = False
    TAKES_MIXED = True

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 2.0,
        max_vectors: PositiveInt | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.max_vectors = max_vectors

    def call(
        self, scores: Any, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Any]:
        del scores, relations
        vectors = ops.concatenate([_vectors(image), _vectors(caption)], axis=0)
        count = ops.shape(vectors)[0]
        if self.max_vectors is not None:
            kept = ops.minimum(count, self.max_vectors)
            vectors = ops.take(vectors, ops.arange(kept) * count // kept, axis=0)
            count = kept
        kernel = -self.temperature * distances.squared_euclidean(vectors, vectors)
        # Every pair stands twice, and the diagonal holds no pair at all.
        kernel = ops.where(ops.eye(count, dtype="bool"), -float("inf"), kernel)
        pairs = ops.cast(count, "float32") * (ops.cast(count, "float32") - 1.0)
        return {"uniformity": ops.logsumexp(kernel) - ops.log(pairs)}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "temperature": self.temperature,
            "max_vectors": self.max_vectors,
        }


def _vectors(embedding: Embedding) -> Any:
    """All vectors (N * J, D) of an embedding."""
    for key in ("samples", "points"):
        if key in embedding:
            return ops.reshape(embedding[key], (-1, embedding[key].shape[-1]))
    return embedding["mean"]
