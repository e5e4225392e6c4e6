"""The loss of PCME++, and the one that ProLIP adds to it: inclusion."""

from __future__ import annotations

import math
from typing import Any, Literal

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.losses.base import Relations
from keras_xmr.losses.queries_base import Queries, QueriesLoss
from keras_xmr.utils.option_types import NonNegativeFloat, NonNegativeInt, PositiveFloat


class ProbabilisticMatching(QueriesLoss):
    """The loss of PCME++: binary cross entropy of all pairs, and again with pseudo-positives.

    Chun 2024, Eq. 2 and 3. The scores are log-odds of a match, as of `closed_form_sampled`; the
    cross entropy is a mean over all pairs, counted for both directions. A pair is pseudo-positive
    if it scores at least as high as some match of the query; the cross entropy
    with those as further matches is added for images and for captions as queries.

    Where images are mixed, the targets are the parts of the images that match. The match that a
    pair is compared with is then one with the largest target, which a pseudo-positive pair takes.

    Args:
        pseudo_positives: Weight of the terms with pseudo-positives (alpha); 0 leaves them out.
        warmup_steps: Number of first steps without them: the scores of an untrained model do not
            indicate matches. `csv_pcmepp_regions` with
            `dimension: 128`, on 500 photos with features of 9 regions of 128 numbers, has a
            validation RSUM of 197.6 after 312 steps without a warm-up, and of 271.4 with one of 156
            or 234 steps, and without pseudo-positives at all (one seed).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("match", "pseudo_match"),
        reads_log_odds=True,
        reads_step=True,
        supports_soft_targets=True,
        only_with={"warmup_steps": {"pseudo_positives": True}},
    )

    def __init__(
        self,
        *,
        pseudo_positives: NonNegativeFloat = 0.1,
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pseudo_positives = pseudo_positives
        self.warmup_steps = warmup_steps

    def sum_over_queries(
        self, rows: Queries, columns: Queries, step: Tensor | None
    ) -> dict[str, Tensor]:
        scores, targets = rows.scores, _targets(rows)
        match = 2.0 * rows.share * _cross_entropy(scores, targets)
        if not self.pseudo_positives:
            return {"match": match, "pseudo_match": ops.zeros(())}
        sides = (
            (rows.share, scores, targets),
            (columns.share, columns.scores, _targets(columns)),
        )
        pseudo = self.switch_after_warm_up(
            step,
            lambda: ops.zeros(()),
            lambda: sum(
                share * _cross_entropy(scores, add_pseudo_positives(scores, targets, axis=1))
                for share, scores, targets in sides
            ),
        )
        return {"match": match, "pseudo_match": self.pseudo_positives * pseudo}

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        if self.pseudo_positives:
            return None
        share = ops.mean(ops.cast(relations["positives"], "float32"))
        odds = ops.log(share) - ops.log1p(-share)
        return self(ops.zeros_like(scores) + odds, {}, {}, relations)["match"]


def add_pseudo_positives(scores: Tensor, targets: Tensor, axis: int) -> Tensor:
    """The targets, and the largest one of a query for every pair that scores like a match of it.

    Args:
        scores: Scores (N, M).
        targets: Degrees of match, from 0 to 1, float32 (N, M).
        axis: The axis of the candidates of a query.

    Returns:
        Targets float32 (N, M), without a gradient. A query without matches has no
        pseudo-positives.
    """
    scores = ops.stop_gradient(scores)
    largest = ops.max(targets, axis=axis, keepdims=True)
    matches = ops.where(targets >= largest, scores, float("inf"))
    lowest = ops.min(matches, axis=axis, keepdims=True)
    return ops.maximum(targets, ops.where(scores >= lowest, largest, 0.0))


def _targets(queries: Queries) -> Tensor:
    """Degrees of match of queries and candidates, from 0 to 1."""
    targets = queries.relations.get("targets")
    return ops.cast(queries.positives, "float32") if targets is None else targets


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean binary cross entropy of log-odds with targets from 0 to 1."""
    return ops.mean(ops.softplus(logits) - targets * logits)


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
