"""Heads of point embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.base import PooledHead
from keras_xmr.pooling import Pooling


class Point(PooledHead):
    """A pooled vector on the unit sphere, as VSE++ has it (Faghri et al. 2018).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        normalize: Whether the vector is divided by its norm.
        absolute: Whether absolute values are taken, as order embeddings need it.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="point")

    def __init__(
        self,
        dimension: int,
        pooling: Callable[[], Pooling] | dict[str, Any],
        *,
        normalize: bool = True,
        absolute: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.normalize = normalize
        self.absolute = absolute

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        mean = self.pooled(features, mask)
        mean = self.l2(mean) if self.normalize else mean
        return {"mean": keras.ops.abs(mean) if self.absolute else mean}


class PointWithFeatures(Point):
    """`Point` with the local features of the encoder, which the loss `captioning` needs.

    They are `features`, float32 (B, L, F), with zeros outside the mask. They are neither
    stored nor exported.
    """

    CONTRACT = HeadContract(keys=("features",))

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        kept = keras.ops.cast(features, "float32")
        if mask is not None:
            kept = kept * keras.ops.cast(mask, "float32")[..., None]
        return super().call(features, mask=mask) | {"features": kept}
