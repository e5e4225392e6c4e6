"""Losses that are sums over queries, or over items, which replicas can share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.losses.base import Loss, Relations
from keras_xmr.utils.option_types import Reduction

LOWEST = -1e30
"""Below every score, and still finite: the difference of two infinities is not a number."""


class PositivePairs(NamedTuple):
    """All P pairs of a query and one of its positives.

    Attributes:
        scores: Scores of all candidates of the query, float32 (P, M).
        positives: Which of them are positives of the query, boolean (P, M).
        positive_scores: The score of the positive of the pair itself, float32 (P, 1).
        weight: Float32 (P,), with which a sum over the pairs is the mean over the positives of a
            query, and then over the queries that have one.
    """

    scores: Tensor
    positives: Tensor
    positive_scores: Tensor
    weight: Tensor


def vectors_of(embedding: Embedding, *keys: str) -> Tensor:
    """All vectors (N * J, D) of an embedding: those of the first of `keys` that it has, or else its
    means. Without keys, samples or points are meant.
    """
    for key in keys or ("samples", "points"):
        if key in embedding:
            return ops.reshape(embedding[key], (-1, embedding[key].shape[-1]))
    return embedding["mean"]


@dataclass(eq=False)
class Queries:
    """Some queries of one side of a batch, or all, and all candidates of the other side.

    Args:
        compute_scores: Computes the scores float32 (Q, C), one row per query, on first access; None
            without scores.
        queries: Embeddings of the Q queries.
        candidates: Embeddings of the C candidates.
        relations: The relations of queries and candidates, all (Q, C).
        batch_positives: The positives of all queries of the batch; None if these are all.
        share: The share of these queries in all queries of the batch.
        first: The position of the first of these queries in the batch.
        exchange: Collects a scalar of each replica, float32 (R,), without a gradient; None if
            these are all queries.
    """

    compute_scores: Callable[[], Tensor]
    queries: Embedding
    candidates: Embedding
    relations: Relations
    _: KW_ONLY
    batch_positives: Tensor | None = None
    share: Any = 1.0
    first: Any = 0
    exchange: Callable[[Tensor], Tensor] | None = None
    _computed: list[Tensor] = field(default_factory=list, init=False)

    @property
    def whole(self) -> bool:
        """Whether these are all queries of their side."""
        return self.batch_positives is None

    @property
    def scores(self) -> Tensor:
        """Scores (Q, C), which are computed once for all losses.

        Must not be accessed first within a branch of a graph, which they could not leave.
        """
        # A cached_property has one lock for all instances until Python 3.12, and a replica that
        # waits for the others while it computes would hold it.
        if not self._computed:
            self._computed.append(self.compute_scores())
        return self._computed[0]

    @property
    def positives(self) -> Tensor:
        """Matching pairs, boolean (Q, C)."""
        return self.relations["positives"]

    def number_of_pairs(self) -> Tensor:
        """Number of matching pairs of the batch, at least 1, as float32."""
        positives = self.positives if self.whole else self.batch_positives
        return ops.maximum(ops.sum(ops.cast(positives, "float32")), 1.0)

    def reduced(self, values: Tensor, reduction: Reduction) -> Tensor:
        """The sum of values of these queries, or their share of the mean over the batch."""
        return ops.sum(values) if reduction == "sum" else self.share * ops.mean(values)

    def weights(self) -> Tensor:
        """Weights (Q,) that make a sum over positives the mean over a query's, then over queries.

        A query without a positive does not count.
        """
        counts = ops.sum(ops.cast(self.positives, "float32"), axis=1)
        answered = counts > 0 if self.whole else ops.any(self.batch_positives, axis=1)
        queries = ops.sum(ops.cast(answered, "float32"))
        return 1.0 / (ops.maximum(counts, 1.0) * ops.maximum(queries, 1.0))

    def positive_pairs(self) -> PositivePairs:
        """All pairs of a query and one of its positives, with the candidates of the query.

        Memory grows with the number of positives, not with the square of the candidates.
        """
        rows, columns = ops.nonzero(self.positives)
        scores, positives, weight = (
            ops.take(values, rows, axis=0)
            for values in (self.scores, self.positives, self.weights())
        )
        own = ops.take_along_axis(scores, columns[:, None], axis=1)
        return PositivePairs(scores, positives, own, weight)

    def transposed(self) -> Queries:
        """The queries of the other side; only if these are all queries of their side."""
        relations = {
            name: ops.transpose(values)
            for name, values in self.relations.items()
            if values is not None
        }
        return Queries(lambda: ops.transpose(self.scores), self.candidates, self.queries, relations)


class QueriesLoss(Loss):
    """A loss with parts that are sums over queries, or over items.

    A subclass implements `sum_over_queries` in place of `call`: the terms of some images and some
    captions, as queries, in each part. Their sum over shares of the batch is the loss, so a replica
    computes its rows against all columns, and all rows against its columns: each of R replicas has
    2 / R of the work and of the memory.
    """

    is_sum_over_queries = True

    def sum_over_queries(
        self, rows: Queries, columns: Queries, step: Tensor | None
    ) -> dict[str, Tensor]:
        """Sums the terms of these queries, for each part.

        Args:
            rows: Some images, as queries, and all captions.
            columns: Some captions, and all images.
            step: Number of steps trained before, for a loss that reads it.
        """
        raise NotImplementedError

    def call(
        self,
        scores: Tensor,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Tensor | None = None,
    ) -> dict[str, Tensor]:
        rows = Queries(lambda: scores, image, caption, relations)
        return self.sum_over_queries(rows, rows.transposed(), step)


class DirectionsLoss(QueriesLoss):
    """A loss with one part for images as queries, and another for captions, in this order.

    A subclass implements `one_way` in place of `sum_over_queries`. One that does not read the
    scores of the matcher may override `similarities`.
    """

    CONTRACT = LossContract(parts=("image_to_text", "text_to_image"))

    def similarities(self, image: Embedding, caption: Embedding) -> Tensor:
        """Scores (..., images, captions) that take the place of those of the matcher."""
        raise NotImplementedError

    def one_way(self, queries: Queries, direction: str, step: Tensor | None) -> Tensor:
        """Sums the terms of these queries.

        Args:
            queries: Some images, or some captions, and all items of the other side.
            direction: The name of the part.
            step: Number of steps trained before, for a loss that reads it.
        """
        raise NotImplementedError

    def sum_over_queries(
        self, rows: Queries, columns: Queries, step: Tensor | None
    ) -> dict[str, Tensor]:
        if not self.contract.reads_scores:
            rows, columns = self._with_similarities(rows, columns)
        parts = zip(self.CONTRACT.parts, (rows, columns), strict=True)
        return {part: self.one_way(queries, part, step) for part, queries in parts}

    def _with_similarities(self, rows: Queries, columns: Queries) -> tuple[Queries, Queries]:
        """The same queries with the scores of `similarities`; a whole batch has them once."""
        score = self.similarities
        scored = replace(rows, compute_scores=lambda: score(rows.queries, rows.candidates))

        def of_columns() -> Tensor:
            scores = scored.scores if rows.whole else score(columns.candidates, columns.queries)
            return ops.swapaxes(scores, -1, -2)

        return scored, replace(columns, compute_scores=of_columns)

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        """The value for equal scores, if the loss reads nothing else."""
        contract = self.contract
        reads_more = contract.accepts or contract.keys or contract.reads_relevance
        if reads_more or not contract.reads_scores:
            return None
        return sum(self(ops.zeros_like(scores), {}, {}, relations).values())


class ItemsLoss(DirectionsLoss):
    """A loss over the items of each side by themselves, images and captions added.

    Its `one_way` reads the embeddings of the queries alone.
    """

    CONTRACT = LossContract(
        parts=("image", "caption"),
        reads_scores=False,
        reads_matches=False,
        supports_soft_targets=True,
    )
