"""Losses that are sums over queries, or over items, which replicas can share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.base import Loss, Relations

Tensor = Any


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

    Attributes:
        whole: Whether these are all queries of their side.
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

    def __post_init__(self) -> None:
        self.whole = self.batch_positives is None
        if self.whole:
            self.batch_positives = self.relations.get("positives")

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

    @property
    def is_sum_over_queries(self) -> bool:
        return True

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


class ItemsLoss(QueriesLoss):
    """A loss over the items of each side by themselves, images and captions added.

    A subclass implements `sum_over_items` in place of `sum_over_queries`.
    """

    CONTRACT = LossContract(
        parts=("image", "caption"),
        reads_scores=False,
        reads_matches=False,
        supports_soft_targets=True,
    )

    def sum_over_items(self, items: Queries) -> Tensor:
        """Sums the terms of the items that are the queries."""
        raise NotImplementedError

    def sum_over_queries(
        self, rows: Queries, columns: Queries, step: Tensor | None
    ) -> dict[str, Tensor]:
        del step
        return {"image": self.sum_over_items(rows), "caption": self.sum_over_items(columns)}


def compute_both_directions(
    rows: Queries, columns: Queries, matrix: Callable[[Queries], Tensor]
) -> tuple[Tensor, Tensor]:
    """Computes a symmetric matrix (..., Q, C) for the rows and for the columns.

    For a whole batch one is the transpose of the other.
    """
    of_rows = matrix(rows)
    return of_rows, ops.swapaxes(of_rows, -1, -2) if rows.whole else matrix(columns)
