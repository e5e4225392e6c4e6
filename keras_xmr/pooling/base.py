"""What a pooling is."""

from __future__ import annotations

from typing import Any, ClassVar

import keras


class Pooling(keras.layers.Layer):
    """Makes one vector of the local features of an item.

    A subclass implements `call(features, mask=None)`, where features are (B, L, F) and the mask,
    if there is one, is boolean (B, L) and true for what counts. It returns (B, D). Its options
    are the keyword-only parameters of its constructor, `EVEN` says whether D must be even, and
    `BATCH_NORM` whether it always has batch normalisation. One that attends to the positions says
    so in `ATTENDS` and implements `attention_weights`.

    Args:
        dimension: D.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    EVEN: ClassVar[bool] = False
    BATCH_NORM: ClassVar[bool] = False
    ATTENDS: ClassVar[bool] = False

    def __init__(self, dimension: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension

    def attention_weights(self, features: Any, mask: Any = None) -> Any:
        """How much each position counts, float32 (B, 1, L), sums of 1; None if it does not attend.

        Args:
            features: Local features (B, L, F).
            mask: True for what counts, boolean (B, L), or None.
        """
        del features, mask

    def for_variance(self) -> Pooling:
        """The pooling that suits a log-variance: the same, without what embeddings alone need."""
        return self

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"dimension": self.dimension}
