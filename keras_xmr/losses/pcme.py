"""The losses of PCME: soft contrastive loss, KL divergence and uniformity."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings import Embedding, distances
from keras_xmr.losses.base import Relations
from keras_xmr.losses.queries_base import ItemsLoss, Queries, QueriesLoss, vectors_of
from keras_xmr.utils.option_types import PositiveFloat, Reduction, TwoOrMore


class SoftContrastive(QueriesLoss):
    """Soft cross-modal contrastive loss over all pairs of the batch (Chun et al. 2021, Eq. 1).

    -log p for pairs that match and -log(1 - p) for the others, where the scores are the log-odds of
    the match probability p. Both directions are counted, as in the released code, so
    everything is doubled.

    Args:
        reduction: "sum" adds up all pairs, to which the weights of the paper belong; "mean"
            divides by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(parts=("positive", "negative"), reads_log_odds=True)

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Any) -> dict[str, Any]:
        positive = ops.where(rows.positives, ops.softplus(-rows.scores), 0.0)
        negative = ops.where(rows.positives, 0.0, ops.softplus(rows.scores))
        parts = {"positive": positive, "negative": negative}
        return {part: 2.0 * rows.reduced(v, self.reduction) for part, v in parts.items()}

    def trivial_value(self, scores: Any, relations: Relations) -> Any:
        share = ops.mean(ops.cast(relations["positives"], "float32"))
        odds = ops.log(share) - ops.log1p(-share)
        return sum(self(ops.zeros_like(scores) + odds, {}, {}, relations).values())


class KLDivergence(ItemsLoss):
    """KL of every embedding to N(0, I), images and captions added.

    Chun et al. 2021, section 3.2.1, where it is called the KL divergence loss.

    Args:
        reduction: "sum" adds up all items, to which the weights of the paper belong; "mean"
            divides each side by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(accepts=("gaussian",))

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def one_way(self, queries: Queries, direction: str, step: Any) -> Any:
        mean, log_variance = queries.queries["mean"], queries.queries["log_variance"]
        divergence = 0.5 * ops.sum(
            mean * mean + ops.exp(log_variance) - 1.0 - log_variance, axis=-1
        )
        return queries.reduced(divergence, self.reduction)


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
        supports_soft_targets=True,
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
        # Of a few vectors of the batch, all replicas would have other parts.
        self.is_sum_over_queries = max_vectors is None

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Any) -> dict[str, Any]:
        vectors = _concatenate_sides(columns.candidates, rows.candidates)
        count = ops.shape(vectors)[0]
        if self.max_vectors is not None:
            kept = ops.minimum(count, self.max_vectors)
            vectors = ops.take(vectors, ops.arange(kept) * count // kept, axis=0)
            count = kept
        queries, places = vectors, ops.arange(count)
        if not rows.whole:
            queries = _concatenate_sides(rows.queries, columns.queries)
            places = _places(rows, columns)
        kernel = -self.temperature * distances.squared_euclidean(queries, vectors)
        # Every pair occurs twice; a vector with itself is not a pair.
        itself = places[:, None] == ops.arange(count)[None, :]
        total = ops.logsumexp(ops.where(itself, -float("inf"), kernel))
        pairs = ops.cast(count, "float32") * (ops.cast(count, "float32") - 1.0)
        if rows.exchange is None:
            return {"uniformity": total - ops.log(pairs)}
        return {"uniformity": _replica_share(total, rows.exchange(total), ops.log(pairs))}


def _replica_share(log_sum: Any, totals: Any, log_pairs: Any) -> Any:
    """The share of a replica in log mean exp: an even part of the value, and its gradient."""
    whole, constant = ops.logsumexp(totals), ops.stop_gradient(log_sum)
    even = (whole - log_pairs) / ops.cast(ops.shape(totals)[0], "float32")
    return even + ops.exp(constant - whole) * (log_sum - constant)


def _concatenate_sides(image: Embedding, caption: Embedding) -> Any:
    return ops.concatenate([vectors_of(image), vectors_of(caption)], axis=0)


def _places(rows: Queries, columns: Queries) -> Any:
    """Positions of the vectors of some images and captions among those of the batch."""
    images = ops.shape(vectors_of(columns.candidates))[0]
    places = []
    for side, begin in ((rows, 0), (columns, images)):
        size = ops.shape(vectors_of(side.queries))[0]
        each = size // ops.shape(next(iter(side.queries.values())))[0]
        places.append(ops.arange(size) + begin + side.first * each)
    return ops.concatenate(places)
