"""Losses of differentiable ranks: the loss of DAA by the semantic relevance, and smooth AP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

from keras_xmr.embeddings import Gaussian, Point, distances
from keras_xmr.embeddings.kinds import vectors
from keras_xmr.layers.backend import with_gradient
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import dtype_of
from keras_xmr.losses.direction_losses import Direction, DirectionsLoss
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat
from keras_xmr.parts.tensors import Step, Tensor

_AT_ONCE = 2**21
"""Comparisons of two candidates that are held at once."""


def smooth_ranks(values: Tensor, temperature: float, copies: Any = 1) -> Tensor:
    """Returns smooth ranks within each row, without a gradient.

    Args:
        values: Float32 (N, M); the largest of a row has the lowest rank.
        temperature: Divisor of differences of values.
        copies: Number of copies of every candidate.

    Returns:
        Ranks from 1 to M * copies, float32 (N, M), shared by the copies of a candidate.
    """

    def rank(rows: Tensor) -> Tensor:
        return ops.sum(_before(rows), axis=2)

    ranks = _in_blocks(rank, (ops.stop_gradient(values) / temperature,))
    # The sums count half of each candidate itself, and its rank begins at 1.
    return 0.5 + ops.cast(copies, dtype_of(values)) * ranks


def smooth_asp(values: Tensor, other_ranks: Tensor, temperature: float) -> Tensor:
    """Returns the smooth Average Semantic Precision of each row, with a gradient by the values.

    Args:
        values: Similarities, float32 (N, M).
        other_ranks: The ranks to compare theirs with, float32 (N, M).
        temperature: Divisor of differences of similarities.

    Returns:
        Float32 (N,).
    """

    def asp(values: Tensor, other_ranks: Tensor) -> Tensor:
        return _in_blocks(_asp_and_gradient, (values, other_ranks))

    return with_gradient(asp, values / temperature, other_ranks)


def _before(rows: Tensor) -> Tensor:
    """Returns smooth comparison of candidate j with candidate i, from 0 to 1: (B, M, M)."""
    return ops.sigmoid(rows[:, None, :] - rows[:, :, None])


def _asp_and_gradient(rows: Tensor, others: Tensor) -> Tensor:
    """Returns the precision of some queries (B, M), and its gradient: (B, 1 + M)."""
    before = _before(rows)
    ranks = 0.5 + ops.sum(before, axis=2)
    smaller, larger = ops.minimum(ranks, others), ops.maximum(ranks, others)
    precision = ops.mean(smaller / larger, axis=1, keepdims=True)
    by_rank = ops.where(ranks < others, 1.0 / others, -others / (ranks * ranks))
    by_rank = ops.where(ranks == others, 0.0, by_rank)
    # Differences of i and j, and of j and i, have one and the same slope.
    slope = before * (1.0 - before)
    sums = ops.matmul(slope, ops.stack([by_rank, ops.ones_like(by_rank)], axis=2))
    gradient = sums[..., 0] - by_rank * sums[..., 1]
    mean = gradient / ops.cast(ops.shape(rows)[1], dtype_of(rows))
    return ops.concatenate([precision, mean], axis=1)


def _in_blocks(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """Applies a function to the rows of tensors (N, M), as many at once as memory allows.

    A function that compares the candidates of a row holds M x M numbers per row.
    """
    count, candidates = inputs[0].shape
    if count is None or candidates is None:
        return ops.map(lambda row: function(*(values[None] for values in row))[0], inputs)
    blocks = -(-count // max(1, _AT_ONCE // candidates**2))
    if blocks == 1:
        return function(*inputs)
    # Blocks are as equal as can be; the last one is made whole by the first rows.
    size = -(-count // blocks)
    spare = -count % size
    whole = [ops.concatenate([values, values[:spare]], axis=0) for values in inputs]
    stacked = tuple(ops.reshape(values, (-1, size, candidates)) for values in whole)
    mapped = ops.map(lambda block: function(*block), stacked)
    return ops.reshape(mapped, (count + spare, -1))[:count]


class DAA(DirectionsLoss):
    """One minus the smooth Average Semantic Precision, sum of both directions (Li et al. 2022).

    The ASP of a query is the mean, over all candidates, of the smaller of two ranks divided by
    the larger one: the rank by similarity, and the rank by relevance to the query (Eq. 4 to 12).
    In both ranks a sigmoid replaces the comparison of two candidates, and a candidate is not
    compared with itself (Eq. 10; Eq. 11 as printed adds half a rank).

    Queries are processed a few at a time, with their gradients, so memory is a few times as much as
    the similarities, and not that times the number of candidates.

    Args:
        similarity: The ranked similarity. "cosine" (Eq. 5) and "dot" compare the samples, each as a
            query and as a candidate, where the matcher draws some, and the means
            elsewhere; "scores" takes the scores of the matcher, whichever it is.
        temperature: Divisor of differences of similarities. 0.01, as in the released
            code, is for cosines; scores on another scale need another.
        relevance_temperature: Divisor of differences of relevances. 0.003 is for CIDEr,
            0.01 of the released code for its TF-IDF, which differs more
            (docs/tables/options.csv).
        directions: Which queries count.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.similarity = similarity
        self.temperature = temperature
        self.relevance_temperature = relevance_temperature
        self.directions = directions

    def similarities(self, image: Point | Gaussian, caption: Point | Gaussian) -> Tensor:
        """Returns similarities (N * J, M * J), where J is 1 without samples."""
        left, right = (vectors(embedding, "samples") for embedding in (image, caption))
        if self.similarity == "cosine":
            return distances.cosine(left, right)
        return ops.matmul(left, ops.transpose(right))

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        if self.directions not in ("both", term):
            return ops.zeros((), direction.dtype)
        scores = direction.scores
        relevance = ops.cast(direction.relations["relevance"], direction.dtype)
        copies = [ops.shape(scores)[axis] // ops.shape(relevance)[axis] for axis in (0, 1)]
        ranks = smooth_ranks(relevance, self.relevance_temperature, copies[1])
        ranks = ops.repeat(ops.repeat(ranks, copies[0], axis=0), copies[1], axis=1)
        return 1.0 - ops.mean(smooth_asp(scores, ranks, self.temperature))


class SmoothAP(DirectionsLoss):
    """1 - average precision with smooth ranks, mean of both directions (Brown et al. 2020).

    The rank of a positive is 1 + the sum over all other candidates of sigmoid((their score - its
    score) / temperature), among all candidates and among the positives of the query; the quotient
    of both, averaged over the positives, is the smooth average precision (Bleeker and de Rijke
    2022, Eq. 2 to 5). Memory is P x M for P pairs that match and M candidates.

    The mean of both directions is our choice: the appendix of Bleeker and de Rijke has one query.
    Li et al. 2022 name no direction in Eq. 12, a mean over queries: `DAA` adds both.

    Args:
        temperature: How steep the sigmoid is. Smaller is nearer to the true average precision,
            and has fewer gradients.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, *, temperature: PositiveFloat = 0.01, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def direction_loss(self, direction: Direction, term: str, step: Step) -> Tensor:
        pairs = direction.positive_pairs()
        above = ops.sigmoid((pairs.scores - pairs.positive_scores) / self.temperature)
        # The positive itself is among the candidates too, with a sigmoid of one half.
        rank = 0.5 + ops.sum(above, axis=1)
        if direction.is_diagonal:
            return 0.5 * ops.mean(1.0 - 1.0 / rank)
        rank_in_positives = 0.5 + ops.sum(ops.where(pairs.positives, above, 0.0), axis=1)
        return 0.5 * ops.sum(pairs.weight * (1.0 - rank_in_positives / rank))
