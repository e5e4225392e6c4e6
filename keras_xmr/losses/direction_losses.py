"""Losses with one term for each direction, or for each side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import keras

from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.layers.backend import is_concrete
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss, dtype_of
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import Reduction
from keras_xmr.parts.tensors import Step, add_up

LOWEST = -1e30
"""Below every score, and still finite: the difference of two infinities is not a number."""


class PositivePairs(NamedTuple):
    """All P pairs of a query and one of its positives.

    Attributes:
        scores: Scores of all candidates of the query, float32 (P, M).
        positives: Which of them are positives of the query, boolean (P, M).
        positive_scores: The score of the positive of the pair itself, float32 (P, 1).
        exists: 1 for a pair; 0 for padding, which graphs need, float32 (P,).
        weight: Float32 (P,), with which a sum over the pairs is the mean over the positives of a
            query, and then over the queries that have one.
    """

    scores: Tensor
    positives: Tensor
    positive_scores: Tensor
    exists: Tensor
    weight: Tensor


@dataclass(eq=False)
class Direction:
    """The items of one side as queries, and the items of the other side as candidates.

    Attributes:
        scores: Scores float32 (..., Q, C), one row per query; None where a loss reads none.
        queries: The embedding of the Q queries.
        candidates: The embedding of the C candidates.
        relations: The relations of queries and candidates, (Q, C).
        shared: Tensors that both directions read, once computed. None where they cannot be kept:
            tensors made in a branch of a graph are out of scope in another branch.
        is_reversed: Whether captions are the queries.
    """

    scores: Tensor
    queries: Embedding
    candidates: Embedding
    relations: Relations
    shared: dict[str, Tensor] | None = field(default_factory=dict)
    is_reversed: bool = False

    @property
    def positives(self) -> Tensor:
        """Matching pairs, boolean (Q, C)."""
        return self.relations["positives"]

    @property
    def dtype(self) -> str:
        """The type of scores, weights and losses."""
        return "float32" if self.scores is None else dtype_of(self.scores)

    def number_of_pairs(self) -> Tensor:
        """Counts the matching pairs, at least 1, in the type of the scores."""
        return ops.maximum(ops.sum(ops.cast(self.positives, self.dtype)), 1.0)

    @property
    def is_diagonal(self) -> bool:
        """Whether query i is known to match candidate i and no other."""
        return "diagonal" in self.relations

    @property
    def original_scores(self) -> Tensor:
        """Scores with images as rows, whichever side the queries are."""
        return ops.swapaxes(self.scores, -1, -2) if self.is_reversed else self.scores

    def negative_scores(self) -> Tensor:
        """Returns the scores (Q, C), `LOWEST` for matches; of both directions at once."""
        if self.shared is None:
            return ops.where(self.positives, LOWEST, self.scores)
        if "negatives" not in self.shared:
            scores = self.original_scores
            positives = self.positives
            if self.is_reversed:
                positives = ops.transpose(positives)
            self.shared["negatives"] = ops.where(positives, LOWEST, scores)
        negatives = self.shared["negatives"]
        return ops.transpose(negatives) if self.is_reversed else negatives

    def scores_of_pairs(self) -> Tensor:
        """Returns the scores of the pairs that `pairs` lists (P,); of both directions at once."""
        if self.shared is not None and "scores_of_pairs" in self.shared:
            return self.shared["scores_of_pairs"]
        if self.is_diagonal:
            own = ops.diagonal(self.scores)
        else:
            rows, columns, _ = self.pairs()
            flat = ops.reshape(self.scores, (-1,))
            own = ops.take(flat, rows * ops.shape(self.scores)[1] + columns)
        if self.shared is not None:
            self.shared["scores_of_pairs"] = own
        return own

    def weights(self) -> Tensor:
        """Returns weights (Q,): a sum over positives becomes the mean over them, then queries.

        A query without a positive does not count.
        """
        counts = ops.sum(ops.cast(self.positives, self.dtype), axis=1)
        queries = ops.sum(ops.cast(counts > 0, self.dtype))
        return 1.0 / (ops.maximum(counts, 1.0) * ops.maximum(queries, 1.0))

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lists the matching pairs: rows and columns, int (P,), and whether each exists, (P,).

        The number of pairs depends on the values, which graphs of JAX and PyTorch cannot have:
        there all pairs are listed, unless each caption is known to have one image.
        """
        if "pairs" in self.relations:
            rows, columns = self.relations["pairs"][0], self.relations["pairs"][1]
            return rows, columns, ops.ones_like(rows, dtype=self.dtype)
        positives = self.positives
        if keras.backend.backend() != "tensorflow" and not is_concrete(positives):
            rows, columns = (
                ops.reshape(indices, (-1,)) for indices in _all_pairs(*positives.shape)
            )
            return rows, columns, ops.cast(ops.reshape(positives, (-1,)), self.dtype)
        rows, columns = ops.nonzero(positives)
        return rows, columns, ops.ones_like(rows, dtype=self.dtype)

    def positive_pairs(self) -> PositivePairs:
        """Gathers all pairs of a query and one of its positives, with all its candidates.

        Memory grows with the number of positives, not with the square of the candidates.
        """
        if self.is_diagonal:
            exists = ops.ones_like(self.scores[:, 0])
            own = self.scores_of_pairs()[:, None]
            return PositivePairs(self.scores, self.positives, own, exists, exists / exists.shape[0])
        rows, columns, exists = self.pairs()
        scores, positives, weight = (
            ops.take(values, rows, axis=0)
            for values in (self.scores, self.positives, self.weights())
        )
        own = ops.take_along_axis(scores, columns[:, None], axis=1)
        return PositivePairs(scores, positives, own, exists, exists * weight)

    def reversed(self) -> Direction:
        """Returns the other direction: candidates are queries."""
        if self.is_diagonal:
            relations = self.relations | {"positives": ops.transpose(self.positives)}
        else:
            relations = {name: ops.transpose(value) for name, value in self.relations.items()}
            if "pairs" in relations:
                relations["pairs"] = ops.flip(self.relations["pairs"], axis=0)
        if "relevance" in self.relations:
            relations["relevance"] = ops.transpose(self.relations["relevance"])
        scores = None if self.scores is None else ops.swapaxes(self.scores, -1, -2)
        return Direction(
            scores, self.candidates, self.queries, relations, self.shared, not self.is_reversed
        )


def _all_pairs(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return ops.meshgrid(ops.arange(rows), ops.arange(columns), indexing="ij")


def reduce(values: Tensor, reduction: Reduction) -> Tensor:
    """Returns the sum or the mean of values."""
    return ops.sum(values) if reduction == "sum" else ops.mean(values)


class DirectionsLoss(Loss):
    """A loss with one term for images as queries, and another for captions, in this order.

    A subclass implements `direction_loss` in place of `compute`. One that does not read the scores
    of the matcher may override `similarities`.
    """

    CONTRACT = LossContract(terms=("image_to_text", "text_to_image"))

    def similarities(self, image: Any, caption: Any) -> Tensor | None:
        """Returns scores (..., images, captions) in place of the scores of the matcher."""
        return None

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        """Returns the loss of one direction, a scalar.

        Args:
            direction: All items of one side as queries, and of the other as candidates.
            term: The name of the term.
            step: Number of steps trained before, for a loss that reads it.
        """
        raise NotImplementedError

    def compute(
        self,
        scores: Tensor | None,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step = None,
    ) -> dict[str, Tensor]:
        if not self.contract.reads_scores:
            scores = self.similarities(image, caption)
        images = Direction(cast(Tensor, scores), image, caption, relations)
        if self.warmup_steps:
            images.shared = None
        directions = zip(self.CONTRACT.terms, (images, images.reversed()), strict=True)
        return {term: self.direction_loss(direction, term, step) for term, direction in directions}

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        """Returns the value for equal scores, if the loss reads nothing else."""
        contract = self.contract
        reads_more = contract.accepts or contract.keys or contract.reads_relevance
        if reads_more or not contract.reads_scores:
            return None
        equal = ops.zeros_like(scores, dtype="float32")
        return add_up(self.terms(equal, {}, {}, relations).values())


class ItemsLoss(Loss):
    """A loss over the items of each side by themselves, images and captions added.

    A subclass implements `items_loss` in place of `compute`.
    """

    CONTRACT = LossContract(
        terms=("image", "caption"),
        reads_scores=False,
        reads_matches=False,
    )

    def items_loss(self, items: Any) -> Tensor:
        """Returns the loss of the items of one side, a scalar."""
        raise NotImplementedError

    def compute(
        self, scores: None, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Tensor]:
        sides = zip(self.CONTRACT.terms, (image, caption), strict=True)
        return {term: self.items_loss(items) for term, items in sides}
