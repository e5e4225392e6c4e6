"""The loss of DAA: ranks like the semantic relevance."""

from __future__ import annotations

from typing import Any, Literal

import keras
from keras import ops

from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.queries_loss import Queries, QueriesLoss, both_ways

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_xmr")
class DAA(QueriesLoss):
    """One minus the smooth Average Semantic Precision (Li et al. 2022, Eq. 4 to 12).

    The ASP of a query is the mean, over all candidates, of the smaller of two ranks divided by
    the larger one: the rank by similarity, and the rank by relevance to the query. In both ranks
    a sigmoid stands for the comparison of two candidates, and a candidate is not compared with
    itself (Eq. 10; Eq. 11 as printed adds half a rank).

    Every query is worked off alone, with its gradient, so memory is a few times that of the
    similarities, and not that times the number of candidates.

    Args:
        similarity: What is ranked. "cosine" (Eq. 5) and "dot" compare the samples, each as a
            query and as a candidate of its own, where the matcher draws some, and the means
            elsewhere; "scores" takes the scores of the matcher, whichever it is.
        temperature: What differences of similarities are divided by. 0.01, as in the released
            code, is for cosines; scores on another scale need another.
        relevance_temperature: What differences of relevances are divided by. 0.003 is for CIDEr,
            0.01 of the released code for its TF-IDF, which differs more. In batches of 60 of 500
            photos of Flickr8k, relevance to other images has a standard deviation of 0.010 by
            CIDEr and of 0.038 by TF-IDF, and the 10th most relevant candidate gets a smooth rank
            of 23.4 by CIDEr with 0.01, 14.7 with 0.003, 12.6 with 0.002, 10.8 with 0.001; by
            TF-IDF with 0.01, 11.8.
        directions: Which queries count.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("image_to_text", "text_to_image")
    NEEDS_RELEVANCE = True
    READS_PAIRS = False

    def __init__(
        self,
        *,
        similarity: Literal["cosine", "dot", "scores"] = "cosine",
        temperature: PositiveFloat = 0.01,
        relevance_temperature: PositiveFloat = 0.003,
        directions: Literal["both", "image_to_text", "text_to_image"] = "both",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.similarity = similarity
        self.temperature = temperature
        self.relevance_temperature = relevance_temperature
        self.directions = directions

    def of_queries(self, rows: Queries, columns: Queries, step: Tensor) -> dict[str, Tensor]:
        del step
        similarities = both_ways(rows, columns, self._similarities)
        parts = {}
        for part, found, side in zip(self.PARTS, similarities, (rows, columns), strict=True):
            parts[part] = ops.zeros(())
            if self.directions in ("both", part):
                parts[part] = side.share * self._one_way(found, side.relations["relevance"])
        return parts

    def _similarities(self, queries: Queries) -> Tensor:
        """Similarities (Q * J, C * J), where J is 1 without samples."""
        if self.similarity == "scores":
            return queries.scores
        left, right = _vectors(queries.queries), _vectors(queries.candidates)
        if self.similarity == "cosine":
            return distances.cosine(left, right)
        return ops.matmul(left, ops.transpose(right))

    def _one_way(self, similarities: Tensor, relevance: Tensor) -> Tensor:
        """The loss of the rows as queries."""
        queries = ops.shape(similarities)[0] // ops.shape(relevance)[0]
        copies = ops.shape(similarities)[1] // ops.shape(relevance)[1]
        ranks = smooth_ranks(relevance, self.relevance_temperature, copies)
        ranks = ops.repeat(ops.repeat(ranks, queries, axis=0), copies, axis=1)
        return 1.0 - ops.mean(smooth_asp(similarities, ranks, self.temperature))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "similarity": self.similarity,
            "temperature": self.temperature,
            "relevance_temperature": self.relevance_temperature,
            "directions": self.directions,
        }


def smooth_ranks(values: Tensor, temperature: float, copies: Any = 1) -> Tensor:
    """Smooth ranks within each row, without a gradient.

    Args:
        values: Float32 (N, M); the largest of a row has the lowest rank.
        temperature: What differences of values are divided by.
        copies: How often every candidate is there.

    Returns:
        Ranks from 1 to M * copies, float32 (N, M), shared by the copies of a candidate.
    """

    def rank(row: Tensor) -> Tensor:
        return ops.sum(_before(row, temperature), axis=1)

    ranks = ops.map(rank, ops.stop_gradient(values))
    # The sums count half of each candidate itself, and its rank begins at 1.
    return 0.5 + ops.cast(copies, "float32") * ranks


def smooth_asp(values: Tensor, other_ranks: Tensor, temperature: float) -> Tensor:
    """Smooth Average Semantic Precision of each row, with a gradient by the values.

    Args:
        values: Similarities, float32 (N, M).
        other_ranks: The ranks to compare theirs with, float32 (N, M).
        temperature: What differences of similarities are divided by.

    Returns:
        Float32 (N,).
    """

    def row_with_gradient(inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        row, other = inputs
        before = _before(row, temperature)
        ranks = 0.5 + ops.sum(before, axis=1)
        smaller, larger = ops.minimum(ranks, other), ops.maximum(ranks, other)
        by_rank = ops.where(ranks < other, 1.0 / other, -other / (ranks * ranks))
        by_rank = ops.where(ranks == other, 0.0, by_rank)
        # Differences of i and j, and of j and i, have one and the same slope.
        slope = before * (1.0 - before)
        sums = ops.matmul(slope, ops.stack([by_rank, ops.ones_like(by_rank)], axis=1))
        gradient = sums[:, 0] - by_rank * sums[:, 1]
        count = ops.cast(ops.shape(row)[0], "float32")
        return ops.mean(smaller / larger), gradient / (temperature * count)

    @ops.custom_gradient
    def asp(values: Tensor) -> tuple[Tensor, Any]:
        value, gradient = ops.map(row_with_gradient, (values, other_ranks))
        return value, lambda upstream: upstream[:, None] * gradient

    return asp(values)


def _before(row: Tensor, temperature: float) -> Tensor:
    """How far candidate j stands before candidate i, from 0 to 1: (M, M)."""
    row = row / temperature
    return ops.sigmoid(row[None, :] - row[:, None])


def _vectors(embedding: Embedding) -> Tensor:
    """The samples of an embedding, one after another, or its means."""
    if "samples" in embedding:
        return ops.reshape(embedding["samples"], (-1, embedding["samples"].shape[-1]))
    return embedding["mean"]
