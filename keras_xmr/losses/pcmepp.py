"""The loss of PCME++."""

from __future__ import annotations

from typing import Unpack

from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss, dtype_of, even_log_odds
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, NonNegativeFloat, NonNegativeInt
from keras_xmr.parts.tensors import Step, add_up


class ProbabilisticMatching(Loss):
    """The loss of PCME++: binary cross entropy of all pairs, and again with pseudo-positives.

    Chun 2024, Eq. 2 and 3. The scores are log-odds of a match, as of `closed_form_sampled`; the
    cross entropy is a mean over all pairs, counted for both directions. A pair is pseudo-positive
    if it scores at least as high as some match of the query; the cross entropy
    with those as further matches is added for images and for captions as queries.

    Where pairs were judged, the targets are how far they match. The match that a pair is compared
    with is then one with the largest target, which a pseudo-positive pair takes.

    Args:
        pseudo_positives: Weight of the terms with pseudo-positives (alpha); 0 leaves them out.
        warmup_steps: Number of first steps without them: the scores of an untrained model do not
            indicate matches (docs/tables/options.csv).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        terms=("match", "pseudo_match"),
        reads_log_odds=True,
        reads_step=True,
        only_with={"warmup_steps": {"pseudo_positives": True}},
    )

    def __init__(
        self,
        *,
        pseudo_positives: NonNegativeFloat = 0.1,
        warmup_steps: NonNegativeInt = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.pseudo_positives = pseudo_positives
        self.warmup_steps = warmup_steps

    def compute(
        self,
        scores: Tensor,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step = None,
    ) -> dict[str, Tensor]:
        targets = relations.get("targets")
        if targets is None:
            targets = relations["positives"]
        targets = ops.cast(targets, dtype_of(scores))
        match = 2.0 * _cross_entropy(scores, targets)
        if not self.pseudo_positives:
            return {"match": match, "pseudo_match": ops.zeros((), dtype_of(scores))}

        def pseudo_match() -> Tensor:
            added = (add_pseudo_positives(scores, targets, axis) for axis in (1, 0))
            return add_up(_cross_entropy(scores, one) for one in added)

        pseudo = self.switch_after_warm_up(step, lambda: ops.zeros_like(match), pseudo_match)
        return {"match": match, "pseudo_match": self.pseudo_positives * pseudo}

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        if self.pseudo_positives:
            return None
        return self.terms(even_log_odds(scores, relations), {}, {}, relations)["match"]


def add_pseudo_positives(scores: Tensor, targets: Tensor, axis: int) -> Tensor:
    """Gives every pair that scores like a match of a query the largest target of that query.

    Args:
        scores: Scores (N, M).
        targets: Degrees of match, from 0 to 1, float32 (N, M).
        axis: The axis of the candidates of a query.

    Returns:
        Targets float32 (N, M), without a gradient. A query without matches has no
        pseudo-positives.
    """
    scores = ops.stop_gradient(scores)
    largest = ops.amax(targets, axis=axis, keepdims=True)
    matches = ops.where(targets >= largest, scores, float("inf"))
    lowest = ops.amin(matches, axis=axis, keepdims=True)
    return ops.maximum(targets, ops.where(scores >= lowest, largest, 0.0))


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean binary cross entropy of log-odds with targets from 0 to 1."""
    return ops.mean(ops.softplus(logits) - targets * logits)
