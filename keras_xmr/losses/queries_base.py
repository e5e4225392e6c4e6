"""Losses that are sums over queries, or over items, of which every replica can take its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.base import Loss, Relations

Tensor = Any


class Queries:
    """Some queries of one side of a batch, or all, and all candidates of the other side.

    Args:
        scores: Gives the scores float32 (Q, C), a query a row, when they are asked for; None
            where nothing scores.
        queries: Embeddings of the Q queries.
        candidates: Embeddings of the C candidates.
        relations: Who matches whom, all (Q, C).
        batch_positives: The positives of all queries of the batch; None if these are all.
        share: Which part of the queries of the batch these are.
        first: The place of the first of these queries in the batch.
        exchange: Makes of a scalar those of all replicas, float32 (R,), without a gradient; None
            if these are all queries.

    Attributes:
        whole: Whether these are all queries of their side.
    """

    def __init__(
        self,
        scores: Callable[[], Tensor],
        queries: Embedding,
        candidates: Embedding,
        relations: Relations,
        *,
        batch_positives: Tensor | None = None,
        share: Any = 1.0,
        first: Any = 0,
        exchange: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._scores = scores
        self._made: list[Tensor] = []
        self.queries = queries
        self.candidates = candidates
        self.relations = relations
        self.share = share
        self.first = first
        self.exchange = exchange
        self.whole = batch_positives is None
        self._batch_positives = batch_positives

    @property
    def scores(self) -> Tensor:
        """Scores (Q, C), which are computed once for all losses.

        Never first asked for within a branch of the graph, out of which they could not come.
        """
        if not self._made:
            self._made.append(self._scores())
        return self._made[0]

    @property
    def positives(self) -> Tensor:
        """Who matches whom, boolean (Q, C)."""
        return self.relations["positives"]

    @property
    def batch_positives(self) -> Tensor:
        """The same of all queries of the batch."""
        return self.positives if self._batch_positives is None else self._batch_positives

    def turned(self) -> Queries:
        """Of all queries of one side: all those of the other."""
        relations = {
            name: ops.transpose(values)
            for name, values in self.relations.items()
            if values is not None
        }
        return Queries(lambda: ops.transpose(self.scores), self.candidates, self.queries, relations)


class QueriesLoss(Loss):
    """A loss whose parts are sums over queries, or over items.

    A subclass implements `of_queries` in place of `call`: what some images and some captions, as
    queries, add to each part. Added up over shares of the batch this is the loss, so a replica
    computes its rows against all columns, and all rows against its columns: of R replicas each has
    2 / R of the work and of the memory.
    """

    @property
    def adds_up(self) -> bool:
        return True

    def of_queries(self, rows: Queries, columns: Queries, step: Tensor | None) -> dict[str, Tensor]:
        """What these queries add to each part.

        Args:
            rows: Some images, as queries, and all captions.
            columns: Some captions, and all images.
            step: How many steps were trained before, for a loss that reads it.
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
        return self.of_queries(rows, rows.turned(), step)


class ItemsLoss(QueriesLoss):
    """A loss over the items of each side by themselves, images and captions added.

    A subclass implements `of_items` in place of `of_queries`.
    """

    CONTRACT = LossContract(
        parts=("image", "caption"), reads_scores=False, reads_matches=False, takes_mixed=True
    )

    def of_items(self, items: Queries) -> Tensor:
        """What the items that are the queries add."""
        raise NotImplementedError

    def of_queries(self, rows: Queries, columns: Queries, step: Tensor | None) -> dict[str, Tensor]:
        del step
        return {"image": self.of_items(rows), "caption": self.of_items(columns)}


def both_ways(
    rows: Queries, columns: Queries, matrix: Callable[[Queries], Tensor]
) -> tuple[Tensor, Tensor]:
    """A matrix (..., Q, C) of the rows and of the columns, which is symmetric in the two sides.

    Of a whole batch one is the other, turned.
    """
    found = matrix(rows)
    return found, ops.swapaxes(found, -1, -2) if rows.whole else matrix(columns)
