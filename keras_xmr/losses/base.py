"""What a loss is."""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from keras_xmr.embeddings import Embedding

Tensor = Any

Relations = dict[str, Tensor]
"""Who matches whom in a batch: `positives`, boolean (N, M), true where an image and a caption
match. If a loss of the objective has `NEEDS_RELEVANCE`, also `relevance`, float32 (N, M), zero or
more: how relevant each caption is to each image."""


class Loss(keras.layers.Layer):
    """A loss over one global batch of N images and M captions.

    A subclass names in `PARTS` the parts it is the sum of, and implements `call(scores, image,
    caption, relations)`, where scores are float32 (N, M), which returns the parts as a dict of
    scalars. In `NEEDS` it says which kinds of embedding it works on, if not on all, and in
    `NEEDS_LOGITS` whether it reads the scores as log-odds of a match, and in `NEEDS_RELEVANCE`
    whether it learns from the semantic relevance of the pairs. Its options are the keyword-only
    parameters of its constructor.

    Nothing may be assumed of the batch but what the relations say: an image can stand in it
    twice, with two of its captions.
    """

    PARTS: ClassVar[tuple[str, ...]]
    NEEDS: ClassVar[tuple[str, ...]] = ()
    NEEDS_LOGITS: ClassVar[bool] = False
    NEEDS_RELEVANCE: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))

    def call(
        self, scores: Tensor, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Tensor]:
        """The parts of the loss."""
        raise NotImplementedError

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        """The value at which the loss gets stuck if the model learns nothing.

        Args:
            scores: Scores (N, M) that are all equal.
            relations: The `positives` of some batch.

        Returns:
            A scalar, or None if no such value is known.
        """
        del scores, relations
        return None
