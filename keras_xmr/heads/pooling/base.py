"""Base class of poolings."""

from __future__ import annotations

from typing import Unpack

from keras_xmr.embeddings.validation import described
from keras_xmr.parts.contracts import PoolingContract
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import Part
from keras_xmr.parts.tensors import Shape, Tensor
from keras_xmr.utils.errors import UserError


class Pooling(Part):
    """Makes one vector of the local features of an item.

    A subclass implements `call(features, mask=None)`, where features are (B, L, F) and the mask,
    if there is one, is boolean (B, L) and true for valid positions. It returns (B, D). Its options
    are the keyword-only parameters of its constructor, and `CONTRACT` declares its other
    properties; see `keras_xmr.parts.contracts.PoolingContract`.

    Args:
        dimension: D.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract()

    def __init__(self, dimension: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension

    def check_output(self, output: object) -> None:
        """Checks the vectors that `call` has returned.

        Raises:
            UserError: If they are not (B, D).
        """
        shape = tuple(getattr(output, "shape", ()))
        if len(shape) != 2 or shape[1] != self.dimension:
            raise UserError(
                f"{type(self).__name__}.call returned {described(output)}; return one vector per "
                f"item, of the shape (B, {self.dimension})"
            )

    def check_width(self, features_shape: Shape, name: str, remedy: str) -> None:
        """Checks that features are D wide, for a pooling that keeps their width.

        Args:
            features_shape: The shape of the features.
            name: The pooling, with the option that makes it keep the width.
            remedy: What else to do, for the message.

        Raises:
            UserError: If they have another width.
        """
        if features_shape[-1] != self.dimension:
            raise UserError(
                f"{name} keeps the width of the features, {features_shape[-1]}, but the dimension "
                f"is {self.dimension}; {remedy}"
            )

    def attention_weights(self, features: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Returns weights of the positions, float32 (B, 1, L), sums of 1; None if it does
        not attend.

        Args:
            features: Local features (B, L, F).
            mask: True for valid positions, boolean (B, L), or None.
        """
        return None

    def for_variance(self) -> Pooling:
        """Makes a pooling for a log-variance: without parts that only embeddings need."""
        return self
