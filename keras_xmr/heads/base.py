"""What a head is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras

from data_pipelines.errors import UserError
from keras_xmr.pooling import Pooling


class HeadError(UserError):
    """A head cannot be built on the features of an encoder."""


class Head(keras.layers.Layer):
    """Makes an embedding of the local features of an item.

    A subclass says in `KIND` what kind of embedding it makes, in `KEYS` what it holds beyond what
    every embedding of that kind does, and implements `call(features, mask=None)`, where features
    are (B, L, F) and the mask, if there is one, is boolean (B, L). It returns an embedding with
    float32 tensors (see `keras_xmr.embeddings`). Its options are the keyword-only parameters of
    its constructor. A head that makes no global vector says so in `POOLS`; a config then names no
    pooling beside it. One that takes a certain L says so in `POSITIONS`. One that attends to the
    positions says so in `ATTENDS` (it does not where it has an option `local_attention` that is
    off), and adds to `attention_maps`. One that is computed where training starts says in
    `NEEDS_START` which `train.start` does it. One that reads more of its pooling than the vector it
    makes, so that the vector must be one linear map, says so in `READS_POOLING`.

    Args:
        dimension: D of the embedding.
        pooling: Makes a new pooling at each call, for the global vectors that the head needs.
            From a config of the head, the serialized pooling. None for a head that pools nothing.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    KIND: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]] = ()
    POOLS: ClassVar[bool] = True
    POSITIONS: ClassVar[int | None] = None
    ATTENDS: ClassVar[bool] = False
    NEEDS_START: ClassVar[str | None] = None
    READS_POOLING: ClassVar[bool] = False

    def __init__(
        self,
        dimension: int,
        pooling: Callable[[], Pooling] | dict[str, Any] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension
        self._make_pooling: Callable[[], Pooling] | None
        if isinstance(pooling, dict):
            config = pooling
            self._make_pooling = lambda: keras.saving.deserialize_keras_object(config)
        else:
            self._make_pooling = pooling

    @property
    def global_pooling(self) -> Pooling | None:
        """The pooling whose vector the embedding begins with; None for a head without."""
        return getattr(self, "pooling", None)

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        """What makes the log-variance, and nothing else; nothing for heads without."""
        return []

    def attention_maps(self, features: Any, mask: Any = None) -> dict[str, Any]:
        """Where the head looks: by a name, how much each position counts.

        Args:
            features: Local features (B, L, F), as `call` takes them.
            mask: True for what counts, boolean (B, L), or None.

        Returns:
            Weights float32 (B, K, L) with sums of 1, K of a set; those of the pooling are named
            so. Empty for a head that attends to nothing, with a pooling that does not either.
        """
        pooling = self.global_pooling
        weights = None if pooling is None else pooling.attention_weights(features, mask=mask)
        return {} if weights is None else {"pooling": weights}

    def new_pooling(self, name: str) -> Pooling:
        """A pooling of the head's own.

        Raises:
            TypeError: If the head was given none.
        """
        if self._make_pooling is None:
            raise TypeError(f"{type(self).__name__} needs a pooling")
        pooling = self._make_pooling()
        pooling.name = name
        return pooling

    def get_config(self) -> dict[str, Any]:
        pooling = None
        if self._make_pooling is not None:
            # Keras takes two objects of one address for one shared object, and so for the same
            # pooling that of a head before, which is gone, and whose place in memory this has.
            pooling = dict(keras.saving.serialize_keras_object(self.new_pooling("pooling")))
            pooling.pop("shared_object_id", None)
        return super().get_config() | {"dimension": self.dimension, "pooling": pooling}
