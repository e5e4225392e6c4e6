"""Base class of heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

import keras

from keras_xmr.embeddings.kinds import KEYS
from keras_xmr.embeddings.validation import RANKS, described, shape_text
from keras_xmr.heads.pooling import Pooling
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import Part
from keras_xmr.parts.tensors import Shape, Tensor
from keras_xmr.utils.errors import ArgumentError, UserError

PoolingMaker = Callable[[], Pooling] | dict[str, Any]
"""Makes a new pooling at each call; or the config of a pooling."""


class HeadError(UserError):
    """A head cannot be built on the features of an encoder."""


class Head(Part):
    """Makes an embedding of the local features of an item.

    A subclass declares the kind of its embeddings and other properties in `CONTRACT`;
    see `keras_xmr.parts.contracts.HeadContract`. It implements `call(features, mask=None)`,
    where features are (B, L, F) and the mask, if there is one, is boolean (B, L). It returns an
    embedding with float32 tensors (see `keras_xmr.embeddings`). Its options are the keyword-only
    parameters of its constructor.

    Args:
        dimension: D of the embedding.
        pooling: Makes a new pooling at each call, for the global vectors that the head needs.
            From a config of the head, the serialized pooling. None for a head that pools nothing.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract()

    def __init__(
        self, dimension: int, pooling: PoolingMaker | None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension
        if pooling is not None and not isinstance(pooling, dict) and not callable(pooling):
            raise ArgumentError(
                f"{type(self).__name__} takes a function that makes its pooling, such as lambda: "
                f"keras_xmr.heads.pooling.Mean({dimension}), not {described(pooling)}"
            )
        if isinstance(pooling, dict):
            pooling = partial(keras.saving.deserialize_keras_object, pooling)
        self._make_pooling = pooling

    def build(self, features_shape: Shape) -> None:
        """Makes nothing: layers within this one build themselves when they are first called."""

    def rebuild(self, shapes: dict[str, Any]) -> None:
        _, length, width = shapes["features_shape"]
        # Layers within a head are built by its first call.
        self(keras.ops.zeros((1, length or 1, width)), training=False)

    def check_output(self, output: Any) -> None:
        """Checks the embedding that `call` has returned.

        Raises:
            HeadError: If it is not an embedding of the declared kind.
        """
        name, contract = type(self).__name__, self.contract
        needed = (*KEYS.get(contract.kind, ()), *contract.keys)
        shapes = ", ".join(f"{key!r}: {shape_text(key)}" for key in needed)
        if not contract.kind:
            raise HeadError(
                f"{name} declares no kind of embedding; write CONTRACT = HeadContract(kind=...), "
                f"one of {', '.join(KEYS)}"
            )
        if not isinstance(output, Mapping):
            raise HeadError(
                f"{name}.call returned {described(output)}; return an embedding of the kind "
                f"{contract.kind}, the dict {{{shapes}}}"
            )
        if missing := [key for key in needed if key not in output]:
            raise HeadError(
                f"{name}.call returned the keys {sorted(output)}, and CONTRACT declares "
                f"{contract.kind!r} embeddings, which need {' and '.join(map(repr, missing))} too"
            )
        for key in needed:
            self._check_tensor(key, output[key])

    def _check_tensor(self, key: str, tensor: Tensor) -> None:
        name, shape = type(self).__name__, tuple(getattr(tensor, "shape", ()))
        wide = key in ("mean", "log_variance", "points") and shape[-1:] != (self.dimension,)
        if key in RANKS and (len(shape) != RANKS[key] or wide):
            raise HeadError(
                f"{name}.call returned {described(tensor)} as {key!r}; its shape is "
                f"{shape_text(key)}, with D = {self.dimension}"
            )
        if keras.backend.standardize_dtype(getattr(tensor, "dtype", "float32")) != "float32":
            raise HeadError(
                f"{name}.call returned {described(tensor)} as {key!r}; embeddings are float32, "
                "whatever the precision of the tower: keras.ops.cast(..., 'float32')"
            )

    @property
    def global_pooling(self) -> Pooling | None:
        """The pooling of the embedding; None for a head without."""
        return getattr(self, "pooling", None)

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        """The layers of the log-variance alone; empty for heads without."""
        return []

    def attention_maps(self, features: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Returns the attention of the head: weights of the positions, by name.

        Args:
            features: Local features (B, L, F), as `call` takes them.
            mask: True for valid positions, boolean (B, L), or None.

        Returns:
            Weights float32 (B, K, L) with sums of 1, K of a set; "pooling" names the weights of the
            pooling. Empty if neither head nor pooling attends.
        """
        pooling = self.global_pooling
        weights = None if pooling is None else pooling.attention_weights(features, mask=mask)
        return {} if weights is None else {"pooling": weights}

    def new_pooling(self, name: str) -> Pooling:
        """Makes a new pooling.

        Raises:
            TypeError: If the head has no pooling.
        """
        if self._make_pooling is None:
            raise TypeError(f"{type(self).__name__} needs a pooling")
        pooling = self._make_pooling()
        pooling.name = name
        return pooling

    def get_config(self) -> dict[str, object]:
        pooling = None
        if self._make_pooling is not None:
            # Keras takes two objects with one address for a shared object, such as this pooling
            # and the deleted one of an earlier head that had the same place in memory.
            pooling = dict(keras.saving.serialize_keras_object(self.new_pooling("pooling")))
            pooling.pop("shared_object_id", None)
        return super().get_config() | {"pooling": pooling}


class PooledHead(Head):
    """A head of one vector of an item, which its `pooling` makes.

    Args:
        dimension: D.
        pooling: Makes the pooling.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, dimension: int, pooling: PoolingMaker, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.pooling = self.new_pooling("pooling")

    def build(self, features_shape: Shape) -> None:
        self.pooling.build(features_shape)

    def pooled(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the vectors of the items, float32 (B, D)."""
        return keras.ops.cast(self.pooling(features, mask=mask), "float32")
