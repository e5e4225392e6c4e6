"""Loss of online and offline negatives (Chen et al. 2020)."""

from __future__ import annotations

from typing import Unpack

from keras_xmr.embeddings import Embedding
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss
from keras_xmr.losses.direction_losses import LOWEST
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import (
    LayerOptions,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    Reduction,
)
from keras_xmr.parts.tensors import Step, Tensor, add_up
from keras_xmr.utils.errors import ArgumentError

_ANCHORS, _HARD_CAPTIONS, _HARD_IMAGES = range(3)
"""The thirds of a batch: anchors, captions that are hard for their images, and the reverse."""


class AdaptiveOfflineQuintuplet(Loss):
    """Adaptive offline quintuplet loss: AOQ (Chen et al. 2020, Eq. 3 to 6).

    A third of a batch are anchors: pairs of an image i and a caption c, in their order. The second
    third are captions that are hard for i among the whole training split, each with its image; the
    last third images that are hard for c, each with a caption of theirs. `train.sampler:
    offline_negatives` makes such batches. With p = s(i, c), h the score of an anchor with its
    offline negative, o with the hardest of the other anchors, and d the score of its two offline
    negatives with one another:

    - online: (beta - (h - o) / alpha) max(0, margin + o - p);
    - offline: max(0, offline_margin + h - p);
    - other_anchors: max(0, offline_margin + d - p).

    Each is added up over both directions. Pairs that match are no negatives.

    Adapted: the weight of `online` is at least 0, as h - o may be more than in the paper where an
    anchor has few others.

    Args:
        margin: Required difference of the scores of an anchor and an online negative.
        offline_margin: The same for offline negatives.
        alpha: Difference of h and o that takes 1 from the weight of an online negative.
        beta: The weight where both are equally hard.
        reduction: "sum" adds up all anchors, as the released code; "mean" divides by their number.
        warmup_steps: Number of first steps in which `online` is the mean over all other items of
            the batch, without a weight, and the other terms are 0: a model that begins with the
            hardest negatives may never leave the state in which all scores are equal.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        terms=("online", "offline", "other_anchors"),
        reads_step=True,
        sampler="offline_negatives",
    )

    def __init__(
        self,
        *,
        margin: PositiveFloat = 0.2,
        offline_margin: NonNegativeFloat = 0.0,
        alpha: PositiveFloat = 0.3,
        beta: PositiveFloat = 1.5,
        reduction: Reduction = "sum",
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.margin = margin
        self.offline_margin = offline_margin
        self.alpha = alpha
        self.beta = beta
        self.reduction = reduction
        self.warmup_steps = warmup_steps

    def compute(
        self,
        scores: Tensor,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step = None,
    ) -> dict[str, Tensor]:
        third = min(scores.shape) // 3
        if not third:
            raise ArgumentError(
                f"AdaptiveOfflineQuintuplet takes a third of a batch as anchors, and one of "
                f"{scores.shape[0]} images and {scores.shape[1]} captions has none: give at least "
                "3 of each, and drop a smaller last batch"
            )
        rivals = ops.where(relations["positives"], LOWEST, scores)
        then = self.switch_after_warm_up(
            step,
            lambda: self._over_all(scores[: 3 * third, : 3 * third], rivals, third),
            lambda: self._over_hard(ops.diagonal(scores)[:third], rivals, third),
        )
        then = then if self.reduction == "sum" else then / third
        return {term: then[place] for place, term in enumerate(self.CONTRACT.terms)}

    def _over_hard(self, matches: Tensor, rivals: Tensor, third: int) -> Tensor:
        """Returns the three terms, summed over the anchors, (3,)."""

        def between(images: int, captions: int) -> Tensor:
            """Returns scores (third, third) of the images of one third and the captions of
            another.
            """
            rows, columns = (slice(n * third, (n + 1) * third) for n in (images, captions))
            return rivals[rows, columns]

        # Scores by the names of the class: h and d of image and of caption as queries.
        directions = (
            (1, between(_ANCHORS, _HARD_CAPTIONS), between(_HARD_IMAGES, _HARD_CAPTIONS)),
            (0, between(_HARD_IMAGES, _ANCHORS), between(_HARD_CAPTIONS, _HARD_IMAGES)),
        )
        directed = []
        for axis, to_offline, of_offline in directions:
            o = ops.amax(between(_ANCHORS, _ANCHORS), axis=axis)
            h, d = ops.diagonal(to_offline), ops.diagonal(of_offline)
            # An offline "negative" that matches says nothing of how hard the online one is.
            ahead = ops.where(h > LOWEST, h - o, 0.0)
            weight = ops.relu(self.beta - ahead / self.alpha)
            online = weight * ops.relu(self.margin + o - matches)
            offline = ops.relu(self.offline_margin + h - matches)
            other_anchors = ops.relu(self.offline_margin + d - matches)
            directed.append(ops.sum(ops.stack([online, offline, other_anchors]), axis=1))
        return add_up(directed)

    def _over_all(self, scores: Tensor, rivals: Tensor, third: int) -> Tensor:
        """Adds up the hinges of all pairs of the batch with all others, per third, (3,)."""
        matches, size = ops.diagonal(scores), 3 * third
        rivals = rivals[:size, :size]
        hinges = ops.relu(self.margin + rivals - matches[:, None])
        hinges = hinges + ops.relu(self.margin + rivals - matches[None, :])
        online = ops.sum(hinges) / (3 * size)
        return ops.stack([online, ops.zeros_like(online), ops.zeros_like(online)])
