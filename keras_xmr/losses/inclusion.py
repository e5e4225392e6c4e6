"""The loss of ProLIP that puts the Gaussian of an image within that of its caption."""

from __future__ import annotations

import math
from typing import Any, Literal

from keras import ops

from data_pipelines.option_types import PositiveFloat
from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.losses.base import Relations
from keras_xmr.losses.queries_base import Queries, QueriesLoss


class Inclusion(QueriesLoss):
    """Inclusion loss: the Gaussian of a caption, which says less, includes that of its image.

    How far p is included in q is H = log of the integral of p^2 q, less that of p q^2: above 0
    where p is the narrower one. The loss is -log sigmoid(scale * H), coordinate by coordinate, and
    the mean of that over each caption with its image, the first one if it matches several (Chun
    et al. 2025, inclusion loss).

    Args:
        scale: Factor of H; 1000 in the released code, with a weight of the loss of 1e-7
            next to `probabilistic_matching`.
        reading: "exact" is H as above. "released" is that of the released code, which counts the
            logarithms of the variances before the integrals twice, and gives the distance of the
            means a factor of e^-10.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("inclusion",),
        accepts=("gaussian",),
        reads_scores=False,
        assumes_one_image_per_caption=True,
    )

    def __init__(
        self,
        *,
        scale: PositiveFloat = 1000.0,
        reading: Literal["exact", "released"] = "exact",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.reading = reading

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Tensor) -> dict[str, Tensor]:
        images = ops.argmax(ops.cast(columns.positives, "int32"), axis=1)
        image = {
            key: ops.take(columns.candidates[key], images, axis=0)
            for key in ("mean", "log_variance")
        }
        included = inclusion(image, columns.queries, self.reading)
        return {"inclusion": columns.share * ops.mean(ops.softplus(-self.scale * included))}

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor:
        return ops.log(2.0)


def inclusion(inner: Embedding, outer: Embedding, reading: str = "exact") -> Tensor:
    """Inclusion of Gaussians in others per coordinate, float32 (N, D).

    With variances v and w and means d apart, H = log(w / v) / 2 - log((v + 2w) / (w + 2v)) / 2
    + d^2 (1 / (w + 2v) - 1 / (v + 2w)).

    Args:
        inner: N Gaussian embeddings, which are above 0 where they are the narrower ones.
        outer: N others, one per inner one.
        reading: "exact" or "released", as `Inclusion` has it.
    """
    parts = (inner["mean"], inner["log_variance"], outer["mean"], outer["log_variance"])
    return _released(*parts) if reading == "released" else _exact(*parts)


def _exact(mean: Tensor, log_variance: Tensor, other: Tensor, log_other: Tensor) -> Tensor:
    """H of Gaussians and those that are to include them; its gradient takes half the operations."""

    @ops.custom_gradient
    def included(mean: Tensor, log_variance: Tensor, other: Tensor, log_other: Tensor) -> Any:
        apart, precision = mean - other, ops.exp(-log_variance)
        share, rest, product, nearness = _shares(log_other - log_variance)
        by_mean = apart * precision * nearness
        value = 0.5 * (log_other - log_variance + ops.log((1.0 + rest) / (1.0 + share)))

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            both = 2.0 + product
            steep = (3.0 * rest - share) * both + rest * ops.square(share - rest)
            distance = ops.square(apart) * precision
            by_other = (1.0 - product + distance * product * steep / both) / both
            by_own = -by_other - apart * by_mean
            by_mean_2 = 2.0 * upstream * by_mean
            return by_mean_2, upstream * by_own, -by_mean_2, upstream * by_other

        return value + apart * by_mean, gradient

    return included(mean, log_variance, other, log_other)


def _released(mean: Tensor, log_variance: Tensor, other: Tensor, log_other: Tensor) -> Tensor:
    """H as the released code computes it."""
    wider = log_other - log_variance
    share, rest, _, nearness = _shares(wider)
    log_ratio = ops.log((1.0 + rest) / (1.0 + share))
    distance = ops.square(mean - other) * ops.exp(-log_variance)
    return wider + 0.5 * log_ratio + math.exp(-10.0) * distance * nearness


def _shares(wider: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Shares of two variances in their sum, the product of both, and the weight of distances.

    The last is v / (w + 2v) - v / (v + 2w). Parts do not overflow, nor do quotients of them.
    """
    share, rest = ops.sigmoid(wider), ops.sigmoid(-wider)
    product = share * rest
    return share, rest, product, rest * (share - rest) / (2.0 + product)
