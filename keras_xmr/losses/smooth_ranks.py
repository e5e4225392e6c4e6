"""Losses of differentiable ranks: that of DAA by the semantic relevance, and smooth AP."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings import Embedding, Tensor, distances
from keras_xmr.losses.queries_base import DirectionsLoss, Queries, vectors_of
from keras_xmr.utils.option_types import PositiveFloat

_NODES = 12
_HALF = 1.5
"""Half a cell, in temperatures: with 12 Chebyshev nodes a sigmoid is wrong by 4e-8."""

_AT_ONCE = 2**20
"""Numbers that the candidates of some queries are spread over at once."""


def smooth_ranks(values: Tensor, temperature: float, copies: Any = 1) -> Tensor:
    """Smooth ranks within each row, without a gradient.

    Args:
        values: Float32 (N, M); the largest of a row has the lowest rank.
        temperature: Divisor of differences of values.
        copies: Number of copies of every candidate.

    Returns:
        Ranks from 1 to M * copies, float32 (N, M), shared by the copies of a candidate.
    """

    def rank(row: Tensor) -> Tensor:
        return ops.sum(_before(row), axis=1)

    ranks = ops.map(rank, ops.stop_gradient(values) / temperature)
    # The sums count half of each candidate itself, and its rank begins at 1.
    return 0.5 + ops.cast(copies, "float32") * ranks


def smooth_asp(values: Tensor, other_ranks: Tensor, temperature: float) -> Tensor:
    """Smooth Average Semantic Precision of each row, with a gradient by the values.

    Args:
        values: Similarities, float32 (N, M).
        other_ranks: The ranks to compare theirs with, float32 (N, M).
        temperature: Divisor of differences of similarities.

    Returns:
        Float32 (N,).
    """

    @ops.custom_gradient
    def asp(values: Tensor) -> tuple[Tensor, Any]:
        scaled = values / temperature
        cells = _cells(scaled)
        value, gradient = tf.cond(
            # Nodes are compared once for all queries, so there may be more of them than candidates.
            # Not where a value is NaN, which must remain in the result.
            _NODES * cells < 2.0 * tf.cast(tf.shape(values)[1], cells.dtype),
            lambda: _precision_on_grid(scaled, other_ranks, tf.cast(cells, tf.int32)),
            lambda: ops.map(_one_by_one, (scaled, other_ranks)),
        )
        return value, lambda upstream: upstream[:, None] * gradient / temperature

    return asp(values)


def _before(row: Tensor) -> Tensor:
    """Smooth comparison of candidate j with candidate i, from 0 to 1: (M, M)."""
    return ops.sigmoid(row[None, :] - row[:, None])


def _one_by_one(inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The precision of one query and its gradient, with all comparisons."""
    row, other = inputs
    before = _before(row)
    precision, by_rank = _precision(0.5 + ops.sum(before, axis=1), other)
    # Differences of i and j, and of j and i, have one and the same slope.
    slope = before * (1.0 - before)
    sums = ops.matmul(slope, ops.stack([by_rank, ops.ones_like(by_rank)], axis=1))
    gradient = sums[:, 0] - by_rank * sums[:, 1]
    return precision, gradient / ops.cast(ops.shape(row)[0], "float32")


def _precision(ranks: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The mean quotient of the smaller and the larger of two ranks, and its slope, not averaged."""
    smaller, larger = ops.minimum(ranks, others), ops.maximum(ranks, others)
    by_rank = ops.where(ranks < others, 1.0 / others, -others / (ranks * ranks))
    by_rank = ops.where(ranks == others, 0.0, by_rank)
    return ops.mean(smaller / larger, axis=-1), by_rank


def _cells(values: Tensor) -> Tensor:
    """Number of cells that the values span, as a float, which may be infinite or NaN."""
    return 1.0 + tf.floor((tf.reduce_max(values) - tf.reduce_min(values)) / (2.0 * _HALF))


def _precision_on_grid(values: Tensor, others: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """The precisions of all queries and their gradients, by way of a grid."""
    count, candidates = tf.unstack(tf.shape(values))
    rows = tf.clip_by_value(_AT_ONCE // (candidates * _NODES), 1, count)
    spare = -count % rows

    def split_blocks(tensor: Tensor) -> Tensor:
        padded = tf.pad(tensor, [[0, spare], [0, 0]], constant_values=1.0)
        return tf.reshape(padded, [-1, rows, candidates])

    before, slope = _between_nodes(cells)

    def block(inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        values, others = inputs
        grid = _Grid(values, cells)
        once = grid.spread(None)
        precision, by_rank = _precision(0.5 + grid.read(once, before), others)
        gradient = grid.read(grid.spread(by_rank), slope) - by_rank * grid.read(once, slope)
        return precision, gradient / tf.cast(candidates, tf.float32)

    blocks = (split_blocks(values - tf.reduce_min(values)), split_blocks(others))
    precision, gradient = ops.map(block, blocks)
    return tf.reshape(precision, [-1])[:count], tf.reshape(gradient, [-1, candidates])[:count]


class _Grid:
    """The candidates (N, M) of some queries, among the cells of a grid that begins at 0."""

    def __init__(self, values: Tensor, cells: Tensor) -> None:
        place = values / (2.0 * _HALF)
        cell = tf.clip_by_value(tf.cast(place, tf.int32), 0, cells - 1)
        self._shape = tf.shape(values)
        self._cells = cells
        self._places = tf.reshape(tf.range(self._shape[0])[:, None] * cells + cell, [-1])
        inner = 2.0 * (place - tf.cast(cell, tf.float32)) - 1.0
        self._polynomials = tf.reshape(_chebyshev(inner), [-1, _NODES])

    def spread(self, weights: Tensor | None) -> Tensor:
        """Distributes the weights of the candidates, 1 for None, over the nodes: (N, nodes)."""
        polynomials = self._polynomials
        if weights is not None:
            polynomials = polynomials * tf.reshape(weights, [-1, 1])
        sums = tf.math.unsorted_segment_sum(polynomials, self._places, self._shape[0] * self._cells)
        return tf.reshape(tf.matmul(sums, _node_weights()), [self._shape[0], -1])

    def read(self, spread: Tensor, kernel: Tensor) -> Tensor:
        """Sums over all candidates with a kernel, at each of them: (N, M)."""
        sums = tf.reshape(tf.matmul(spread, kernel), [-1, _NODES])
        sums = tf.gather(tf.matmul(sums, _node_weights(), transpose_b=True), self._places)
        return tf.reshape(tf.reduce_sum(sums * self._polynomials, axis=1), self._shape)


def _between_nodes(cells: Tensor) -> tuple[Tensor, Tensor]:
    """Smooth comparisons of all nodes of the grid, and their slopes."""
    centers = _HALF * (2.0 * tf.cast(tf.range(cells), tf.float32) + 1.0)
    nodes = tf.reshape(centers[:, None] + _HALF * tf.constant(_nodes(), tf.float32), [-1])
    before = tf.sigmoid(nodes[:, None] - nodes[None, :])
    return before, before * tf.sigmoid(nodes[None, :] - nodes[:, None])


def _chebyshev(values: Tensor) -> Tensor:
    """The Chebyshev polynomials of values from -1 to 1, in a last axis."""
    polynomials = [tf.ones_like(values), values]
    while len(polynomials) < _NODES:
        polynomials.append(2.0 * values * polynomials[-1] - polynomials[-2])
    return tf.stack(polynomials, axis=-1)


@cache
def _nodes() -> np.ndarray:
    return np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)


def _node_weights() -> Tensor:
    """The matrix from polynomials of a value to weights of nodes: (polynomials, nodes)."""
    orders = np.arange(_NODES)
    values = np.cos(orders[:, None] * np.arccos(_nodes())[None, :])
    return tf.constant(np.where(orders == 0, 1.0, 2.0)[:, None] / _NODES * values, tf.float32)


class DAA(DirectionsLoss):
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

    def similarities(self, image: Embedding, caption: Embedding) -> Tensor:
        """Similarities (N * J, M * J), where J is 1 without samples."""
        left, right = (vectors_of(embedding, "samples") for embedding in (image, caption))
        if self.similarity == "cosine":
            return distances.cosine(left, right)
        return ops.matmul(left, ops.transpose(right))

    def one_way(self, queries: Queries, direction: str, step: Tensor) -> Tensor:
        if self.directions not in ("both", direction):
            return ops.zeros(())
        scores, relevance = queries.scores, queries.relations["relevance"]
        copies = [ops.shape(scores)[axis] // ops.shape(relevance)[axis] for axis in (0, 1)]
        ranks = smooth_ranks(relevance, self.relevance_temperature, copies[1])
        ranks = ops.repeat(ops.repeat(ranks, copies[0], axis=0), copies[1], axis=1)
        return queries.share * (1.0 - ops.mean(smooth_asp(scores, ranks, self.temperature)))


class SmoothAP(DirectionsLoss):
    """1 - average precision with smooth ranks, mean of both directions (Brown et al. 2020).

    The rank of a positive is 1 + the sum over all other candidates of sigmoid((their score - its
    score) / temperature), among all candidates and among the positives of the query; the quotient
    of both, averaged over the positives, is the smooth average precision (Bleeker and de Rijke
    2022, Eq. 2 to 5). Memory is P x M for P pairs that match and M candidates.

    Args:
        temperature: How steep the sigmoid is. Smaller is nearer to the true average precision,
            and has fewer gradients.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, *, temperature: PositiveFloat = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def one_way(self, queries: Queries, direction: str, step: Any) -> Any:
        pairs = queries.positive_pairs()
        above = ops.sigmoid((pairs.scores - pairs.positive_scores) / self.temperature)
        # The positive itself is among the candidates too, with a sigmoid of one half.
        rank = 0.5 + ops.sum(above, axis=1)
        rank_in_positives = 0.5 + ops.sum(ops.where(pairs.positives, above, 0.0), axis=1)
        return 0.5 * ops.sum(pairs.weight * (1.0 - rank_in_positives / rank))
