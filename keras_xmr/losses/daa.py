"""The loss of DAA: ranks like the semantic relevance."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.queries_base import Queries, QueriesLoss, compute_both_directions
from keras_xmr.losses.smooth_ranks import smooth_asp, smooth_ranks

Tensor = Any


class DAA(QueriesLoss):
    """One minus the smooth Average Semantic Precision (Li et al. 2022, Eq. 4 to 12).

    The ASP of a query is the mean, over all candidates, of the smaller of two ranks divided by
    the larger one: the rank by similarity, and the rank by relevance to the query. In both ranks
    a sigmoid replaces the comparison of two candidates, and a candidate is not compared with
    itself (Eq. 10; Eq. 11 as printed adds half a rank).

    Queries are processed a few at a time, with their gradients, so memory is a few times that of
    the similarities, and not that times the number of candidates. See `smooth_ranks` for how the
    sums over many candidates are taken.

    Args:
        similarity: The ranked similarity. "cosine" (Eq. 5) and "dot" compare the samples, each as a
            query and as a candidate, where the matcher draws some, and the means
            elsewhere; "scores" takes the scores of the matcher, whichever it is.
        temperature: Divisor of differences of similarities. 0.01, as in the released
            code, is for cosines; scores on another scale need another.
        relevance_temperature: Divisor of differences of relevances. 0.003 is for CIDEr,
            0.01 of the released code for its TF-IDF, which differs more. In batches of 60 of 500
            photos of Flickr8k, relevance to other images has a standard deviation of 0.010 by
            CIDEr and of 0.038 by TF-IDF, and the 10th most relevant candidate gets a smooth rank
            of 23.4 by CIDEr with 0.01, 14.7 with 0.003, 12.6 with 0.002, 10.8 with 0.001; by
            TF-IDF with 0.01, 11.8.
        directions: Which queries count.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("image_to_text", "text_to_image"),
        accepts=("point", "gaussian"),
        reads_scores=False,
        reads_relevance=True,
        reads_matches=False,
        compiles=False,
        when=(({"similarity": "scores"}, {"reads_scores": True, "accepts": ()}),),
    )

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

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Tensor) -> dict[str, Tensor]:
        del step
        similarities = compute_both_directions(rows, columns, self._similarities)
        parts = {}
        for part, matrix, side in zip(
            self.CONTRACT.parts, similarities, (rows, columns), strict=True
        ):
            parts[part] = ops.zeros(())
            if self.directions in ("both", part):
                parts[part] = side.share * self._one_way(matrix, side.relations["relevance"])
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


def _vectors(embedding: Embedding) -> Tensor:
    """The samples of an embedding, one after another, or its means."""
    if "samples" in embedding:
        return ops.reshape(embedding["samples"], (-1, embedding["samples"].shape[-1]))
    return embedding["mean"]
