"""The head of points with local attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.local_base import LocalHead
from keras_xmr.layers import LocalResidual
from keras_xmr.pooling import Pooling


@keras.saving.register_keras_serializable(package="keras_xmr")
class AttentivePoint(LocalHead):
    """A point from a pooled vector and a local attention branch: the captions of DVSE.

    LayerNorm(pooled + s(local)) on the unit sphere (Wei et al., section III-B).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        activation: s.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(
        kind="point", attends=True, when=(({"rezero": False}, {"begins_as_pooling": False}),)
    )

    def __init__(
        self,
        dimension: int,
        pooling: Callable[[], Pooling] | dict[str, Any],
        *,
        activation: Literal["sigmoid", "tanh", "relu", "linear"] = "sigmoid",
        rezero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.activation = activation
        self.rezero = rezero
        self.pooling = self.new_pooling("pooling")
        self.residual = LocalResidual(
            dimension,
            activation=activation,
            rezero=rezero,
            dtype=self.dtype_policy,
            name="residual",
        )

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        points, _ = self.residual(features, self.pooling(features, mask=mask), mask=mask)
        return {"mean": points[:, 0]}
