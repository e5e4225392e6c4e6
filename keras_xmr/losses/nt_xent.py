"""The symmetric InfoNCE loss."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.embeddings import Embedding
from keras_xmr.layers import Temperature
from keras_xmr.losses.base import Loss, Relations
from keras_xmr.options import PositiveFloat
from keras_xmr.queries import query_weights


@keras.saving.register_keras_serializable(package="keras_xmr")
class NTXent(Loss):
    """Cross entropy of a positive against the negatives, mean of both directions.

    The normalised, temperature-scaled cross entropy of Chen et al. 2020, across modalities: the
    InfoNCE loss of Radford et al. 2021. A query with several positives has one cross entropy for
    each, against that positive and all negatives, and their mean counts: one right answer does
    not compete with another.

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("image_to_text", "text_to_image")

    def __init__(
        self, *, temperature: PositiveFloat = 0.07, learnable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.learnable = learnable
        self.divide = Temperature(temperature, learnable, name="temperature")

    def build(self, *shapes: Any, **more_shapes: Any) -> None:
        """The temperature is there from the start."""

    def call(
        self, scores: Any, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Any]:
        del image, caption
        logits, positives = self.divide(scores), relations["positives"]
        there = _cross_entropy(logits, positives)
        back = _cross_entropy(ops.transpose(logits), ops.transpose(positives))
        return {"image_to_text": 0.5 * there, "text_to_image": 0.5 * back}

    def trivial_value(self, scores: Any, relations: Relations) -> Any:
        return sum(self(ops.zeros_like(scores), {}, {}, relations).values())

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "temperature": self.temperature,
            "learnable": self.learnable,
        }


def _cross_entropy(logits: Any, positives: Any) -> Any:
    """Mean over the queries (rows), and the positives of each, of the cross entropy."""
    # Large logits would lose the digits by which they differ in the sum of their exponentials.
    logits = logits - ops.stop_gradient(ops.max(logits, axis=1, keepdims=True))
    negatives = ops.logsumexp(ops.where(positives, _LOWEST, logits), axis=1, keepdims=True)
    entropy = ops.where(positives, ops.softplus(negatives - logits), 0.0)
    return ops.sum(query_weights(positives)[:, None] * entropy)


# Below every logit, and still finite: a query without negatives keeps finite gradients.
_LOWEST = -1e30
