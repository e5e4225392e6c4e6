"""The losses of PCME: soft contrastive loss, KL divergence and uniformity."""

from __future__ import annotations

from typing import Any, Unpack

from keras_xmr.embeddings import Embedding, Gaussian, distances
from keras_xmr.embeddings.kinds import vectors
from keras_xmr.layers.backend import backend
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss, dtype_of, even_log_odds
from keras_xmr.losses.direction_losses import ItemsLoss, reduce
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat, Reduction, TwoOrMore
from keras_xmr.parts.tensors import Tensor, add_up


class SoftContrastive(Loss):
    """Soft cross-modal contrastive loss over all pairs of the batch (Chun et al. 2021, Eq. 1).

    -log p for pairs that match and -log(1 - p) for the others, where the scores are the log-odds of
    the match probability p. Both directions are counted, as in the released code, so
    everything is doubled.

    Args:
        reduction: "sum" adds up all pairs, to which the weights of the paper belong; "mean"
            divides by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(terms=("positive", "negative"), reads_log_odds=True)

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def compute(
        self, scores: Tensor, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Any]:
        weight = 2.0
        if self.reduction == "mean":
            weight = 2.0 / ops.cast(ops.size(scores), scores.dtype)
        sums = _softplus_sums(scores, relations, weight)
        return dict(zip(self.CONTRACT.terms, sums, strict=True))

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor:
        odds = even_log_odds(scores, relations)
        return add_up(self.terms(odds, {}, {}, relations).values())


def _softplus_sums(scores: Tensor, relations: Relations, weight: Any) -> tuple[Tensor, Tensor]:
    """Adds up softplus(-score) over pairs that match, and softplus(score) over others, weighted."""
    positives, is_diagonal = relations["positives"], "diagonal" in relations
    if is_diagonal and backend() == "torch":
        from keras_xmr.layers import torch_paths

        found = torch_paths.softplus_sums(scores, weight)
        if found is not None:
            return found
    # A product takes TensorFlow less time than a choice, forward and backward.
    signs = 1.0 - 2.0 * ops.cast(positives, dtype_of(scores))
    values = ops.softplus(signs * scores)
    own = ops.diagonal(values) if is_diagonal else ops.where(positives, values, 0.0)
    return weight * ops.sum(own), weight * ops.sum(ops.where(positives, 0.0, values))


def sample_weights(logits: Any, matches: Any) -> Any:
    """Computes how much each pair of samples weighs in the gradient of `SoftContrastive`.

    The derivative of -log p by the logit l of a pair of samples is -w (1 - s(l)), and of
    -log(1 - p) it is w s(l), with w = s(l) / sum s(l) for a match, and w = s(-l) / sum s(-l) for
    others, over all pairs of samples. In Chun et al. 2021, Eq. 5, e stands for s, and the signs
    are of the log-likelihood. Weights are largest where samples are near in a match, and far apart
    in others.

    Args:
        logits: -scale * distance + shift of all pairs of samples, (J, N, J', M) as
            `distances.sampled_euclidean` has them.
        matches: Whether image and caption match, bool (N, M).

    Returns:
        Weights (J, N, J', M), whose sum over J and J' is 1.
    """
    signed = ops.where(matches[None, :, None, :], logits, -logits)
    logarithms = ops.log_sigmoid(signed)
    largest = ops.amax(logarithms, axis=(0, 2), keepdims=True)
    weights = ops.exp(logarithms - largest)
    return weights / ops.sum(weights, axis=(0, 2), keepdims=True)


class KLDivergence(ItemsLoss):
    """KL of every embedding to N(0, I), images and captions added.

    Chun et al. 2021, section 3.2.1, where it is called the KL divergence loss.

    Args:
        reduction: "sum" adds up all items, to which the weights of the paper belong; "mean"
            divides each side by their number.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(accepts=("gaussian",))

    def __init__(self, *, reduction: Reduction = "sum", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.reduction = reduction

    def items_loss(self, items: Gaussian) -> Tensor:
        mean, log_variance = items["mean"], items["log_variance"]
        divergence = 0.5 * ops.sum(
            mean * mean + ops.exp(log_variance) - 1.0 - log_variance, axis=-1
        )
        return reduce(divergence, self.reduction)


class Uniformity(Loss):
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
        terms=("uniformity",),
        accepts=("gaussian", "point", "set"),
        reads_scores=False,
        reads_matches=False,
    )

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 2.0,
        max_vectors: TwoOrMore | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.max_vectors = max_vectors

    def compute(
        self, scores: Tensor, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Any]:
        sides = (vectors(side, "samples", "points") for side in (image, caption))
        both = ops.concatenate(list(sides), axis=0)
        count = ops.shape(both)[0]
        if self.max_vectors is not None:
            limit = self.max_vectors
            kept = min(count, limit) if isinstance(count, int) else ops.minimum(count, limit)
            both = ops.take(both, ops.arange(kept) * count // kept, axis=0)
            count = kept
        kernel = -self.temperature * distances.squared_euclidean(both, both)
        # Every pair occurs twice; a vector with itself is not a pair.
        itself = ops.arange(count)[:, None] == ops.arange(count)[None, :]
        total = ops.logsumexp(ops.where(itself, -float("inf"), kernel))
        number = ops.cast(count, dtype_of(both))
        pairs = number * (number - 1.0)
        return {"uniformity": total - ops.log(pairs)}
