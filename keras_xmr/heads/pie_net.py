"""The head of polysemous embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.config.option_types import BelowOne, PositiveInt
from keras_xmr.heads.local_base import LocalHead
from keras_xmr.layers import LocalResidual
from keras_xmr.pooling import Pooling


@keras.saving.register_keras_serializable(package="keras_xmr")
class PIENet(LocalHead):
    """A set of K embeddings from a pooled vector and K-headed local attention.

    The polysemous instance embedding network of PVSE (Song and Soleymani 2019, section 3.2).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K.
        dropout: Part of the residuals that is dropped in training.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(
        kind="set",
        keys=("residuals",),
        attends=True,
        when=(({"rezero": False}, {"begins_as_pooling": False}),),
    )

    def __init__(
        self,
        dimension: int,
        pooling: Callable[[], Pooling] | dict[str, Any],
        *,
        set_size: PositiveInt = 4,
        dropout: BelowOne = 0.0,
        rezero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.set_size = set_size
        self.dropout = dropout
        self.rezero = rezero
        self.pooling = self.new_pooling("pooling")
        self.residual = LocalResidual(
            dimension,
            set_size,
            dropout=dropout,
            rezero=rezero,
            dtype=self.dtype_policy,
            name="residual",
        )

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        pooled = self.pooling(features, mask=mask)
        points, residuals = self.residual(features, pooled, mask=mask)
        return {"points": points, "residuals": residuals}
