"""The regularizer that spreads embeddings."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import PositiveFloat, TwoOrMore
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.queries_base import Queries, QueriesLoss


@keras.saving.register_keras_serializable(package="keras_xmr")
class Uniformity(QueriesLoss):
    """log mean exp(-t |x - y|^2) over all pairs of vectors of both modalities.

    Wang and Isola 2020, as Chun et al. 2021 use it. The vectors are the samples, where the
    matcher draws some, the points of sets, and the means elsewhere.

    Args:
        temperature: t.
        max_vectors: The released code draws 128 of the vectors, with replacement, where there
            are more; here all are taken (null), or this many, evenly spread over the batch.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("uniformity",),
        accepts=("gaussian", "point", "set"),
        reads_scores=False,
        reads_matches=False,
        takes_mixed=True,
    )

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 2.0,
        max_vectors: TwoOrMore | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.max_vectors = max_vectors

    @property
    def adds_up(self) -> bool:
        # Of a few vectors of the batch, all replicas would have other parts.
        return self.max_vectors is None

    def of_queries(self, rows: Queries, columns: Queries, step: Any) -> dict[str, Any]:
        del step
        vectors = _of_both(columns.candidates, rows.candidates)
        count = ops.shape(vectors)[0]
        if self.max_vectors is not None:
            kept = ops.minimum(count, self.max_vectors)
            vectors = ops.take(vectors, ops.arange(kept) * count // kept, axis=0)
            count = kept
        own, places = vectors, ops.arange(count)
        if not rows.whole:
            own, places = _of_both(rows.queries, columns.queries), _places(rows, columns)
        kernel = -self.temperature * distances.squared_euclidean(own, vectors)
        # Every pair stands twice, and with itself a vector is no pair at all.
        itself = places[:, None] == ops.arange(count)[None, :]
        total = ops.logsumexp(ops.where(itself, -float("inf"), kernel))
        pairs = ops.cast(count, "float32") * (ops.cast(count, "float32") - 1.0)
        if rows.exchange is None:
            return {"uniformity": total - ops.log(pairs)}
        return {"uniformity": _part(total, rows.exchange(total), ops.log(pairs))}


def _part(own: Any, totals: Any, log_pairs: Any) -> Any:
    """What a replica adds to log mean exp: an even part of the value, and its own gradient."""
    whole, constant = ops.logsumexp(totals), ops.stop_gradient(own)
    even = (whole - log_pairs) / ops.cast(ops.shape(totals)[0], "float32")
    return even + ops.exp(constant - whole) * (own - constant)


def _of_both(image: Embedding, caption: Embedding) -> Any:
    return ops.concatenate([_vectors(image), _vectors(caption)], axis=0)


def _places(rows: Queries, columns: Queries) -> Any:
    """Where the vectors of some images and some captions stand among those of the batch."""
    images = ops.shape(_vectors(columns.candidates))[0]
    places = []
    for side, begin in ((rows, 0), (columns, images)):
        own = ops.shape(_vectors(side.queries))[0]
        each = own // ops.shape(next(iter(side.queries.values())))[0]
        places.append(ops.arange(own) + begin + side.first * each)
    return ops.concatenate(places)


def _vectors(embedding: Embedding) -> Any:
    """All vectors (N * J, D) of an embedding."""
    for key in ("samples", "points"):
        if key in embedding:
            return ops.reshape(embedding[key], (-1, embedding[key].shape[-1]))
    return embedding["mean"]
