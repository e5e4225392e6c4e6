"""The contrastive loss for data with classes."""

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
class SupervisedContrastive(Loss):
    """Cross entropy of each positive against all candidates, mean of both directions.

    Khosla et al. 2020, Eq. 2, across modalities: the anchors are the images and the captions in
    turn, and the candidates of an anchor all items of the other modality. Unlike in `nt_xent` the
    other positives of a query stand in the denominator, which draws all of a class together; made
    for data with classes (`judgements: classes`).

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("image_to_text", "text_to_image")

    def __init__(
        self, *, temperature: PositiveFloat = 0.1, learnable: bool = False, **kwargs: Any
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
    entropy = ops.where(positives, -ops.log_softmax(logits, axis=1), 0.0)
    return ops.sum(query_weights(positives)[:, None] * entropy)
