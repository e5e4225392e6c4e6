"""Losses as functions of their weights, for JAX."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.embeddings.kinds import shapes_of
from keras_xmr.embeddings.validation import as_embedding
from keras_xmr.losses.base import Loss
from keras_xmr.parts.tensors import Tensor

Values = list[Tensor]


class Functional:
    """A loss and its matcher as a function of their weights, which JAX can differentiate.

    Preparing embeddings, scoring and the loss are one function, so every weight has its gradient.

    Args:
        loss: The loss.
        matcher: The matcher that scores for it; None for none.
    """

    def __init__(self, loss: Loss, matcher: Any = None) -> None:
        self.loss = loss
        self.matcher = matcher

    def init(self, images: Any, captions: Any) -> tuple[Values, Values]:
        """Makes the weights for embeddings of these shapes.

        Args:
            images: Embeddings of images, as of a call of the loss.
            captions: Embeddings of captions.

        Returns:
            The weights that are trained, and the state: statistics that training moves.
        """
        image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
        if self.matcher is not None:
            self.matcher.ensure_built(image, caption)
        if not self.loss.built:
            self.loss.build(None, shapes_of(image), shapes_of(caption))
        return [v.value for v in self._trainable()], [v.value for v in self._state()]

    def __call__(
        self, weights: Values, state: Values, images: Any, captions: Any, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Values]:
        """Computes the loss.

        Args:
            weights: The weights, as `init` returns them.
            state: The state.
            images: Embeddings of images.
            captions: Embeddings of captions.
            *args: `image_ids`, as of a call of the loss.
            **kwargs: Further arguments of it. In training the matcher may need a `seed`.

        Returns:
            The loss, a scalar, and the new state.
        """
        variables, kept = self._trainable(), self._state()
        mapping = [*zip(variables, weights, strict=True), *zip(kept, state, strict=True)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            value = self.loss(images, captions, *args, matcher=self.matcher, **kwargs)
            moved = [scope.get_current_value(one) for one in kept]
        return value, [old if new is None else new for old, new in zip(state, moved, strict=True)]

    def assign(self, weights: Values, state: Values) -> None:
        """Stores weights and state in the loss and the matcher, for instance to evaluate."""
        for variables, values in ((self._trainable(), weights), (self._state(), state)):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def _parts(self) -> list[Any]:
        return [self.loss] if self.matcher is None else [self.loss, self.matcher]

    def _trainable(self) -> list[Any]:
        return [one for part in self._parts() for one in part.trainable_variables]

    def _state(self) -> list[Any]:
        return [one for part in self._parts() for one in part.non_trainable_variables]
