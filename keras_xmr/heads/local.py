"""Heads with a local attention branch and a pooled vector."""

from __future__ import annotations

from typing import Any, Literal

import keras

from data_pipelines.option_types import BelowOne, PositiveInt
from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.base import PooledHead, PoolingMaker
from keras_xmr.heads.pooling.mean import masked_mean
from keras_xmr.layers import LocalResidual


class _LocalHead(PooledHead):
    """A head that combines a pooled vector with K-headed local attention: a set of K embeddings.

    A subclass makes the layer `residual` by `local_residual`.
    """

    CONTRACT = HeadContract(attends=True, when=(({"rezero": False}, {"begins_as_pooling": False}),))

    residual: LocalResidual

    def local_residual(self, heads: int = 1, **options: Any) -> LocalResidual:
        """Makes the layer of the local attention."""
        policy = self.dtype_policy
        return LocalResidual(self.dimension, heads, dtype=policy, name="residual", **options)

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        pooled = self.pooling(features, mask=mask)
        points, residuals = self.residual(features, pooled, mask=mask)
        return {"points": points, "residuals": residuals}

    def attention_maps(self, features: Any, mask: Any = None) -> dict[str, Any]:
        _, weights = self.residual.attention(features, mask=mask)
        return super().attention_maps(features, mask) | {"embedding": weights}


class AttentivePoint(_LocalHead):
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

    CONTRACT = HeadContract(kind="point")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        activation: Literal["sigmoid", "tanh", "relu", "linear"] = "sigmoid",
        rezero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.activation = activation
        self.rezero = rezero
        self.residual = self.local_residual(activation=activation, rezero=rezero)

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        return {"mean": super().call(features, mask=mask)["points"][:, 0]}


class PIENet(_LocalHead):
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

    CONTRACT = HeadContract(kind="set", keys=("residuals",))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
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
        self.residual = self.local_residual(set_size, dropout=dropout, rezero=rezero)


class DynamicSubEmbeddings(_LocalHead):
    """K sub-embeddings from multi-head attention, with a dynamic mask: the images of DVSE.

    v_k = LayerNorm(pooled + s(local_k)) on the unit sphere (Wei et al., section III-B). The mask
    round(sigmoid(w2 mean of the features)) selects the coordinates of the orthogonality loss
    for this item (its Eq. 3). w2 is drawn once and never trained, and rounding has no gradient, so
    the mask is a constant of the item.

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K; 1 is the ablation without sub-embeddings.
        activation: s. The paper says "an activation function"; `DynamicOrthogonality` has
            measurements. A sigmoid makes all sub-embeddings similar at the beginning, and leaves
            the loss hardly a gradient to separate them.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="set", keys=("residuals", "mask"))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        set_size: PositiveInt = 6,
        activation: Literal["sigmoid", "tanh", "relu", "linear"] = "tanh",
        rezero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.set_size = set_size
        self.activation = activation
        self.rezero = rezero
        self.residual = self.local_residual(set_size, activation=activation, rezero=rezero)

    def build(self, features_shape: tuple[Any, ...]) -> None:
        super().build(features_shape)
        # A weight of the head itself: a frozen layer would be trained again in the next phase.
        shape = (features_shape[-1], self.dimension)
        self.mask_projection = self.add_fixed("mask_projection", shape, "glorot_uniform")

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        return super().call(features, mask=mask) | {"mask": self._mask(features, mask)}

    def _mask(self, features: Any, mask: Any) -> Any:
        """The dynamic mask, 0 or 1, float32 (B, D)."""
        mean = masked_mean(keras.ops.cast(features, "float32"), mask)
        projected = keras.ops.matmul(mean, keras.ops.cast(self.mask_projection, "float32"))
        return keras.ops.stop_gradient(keras.ops.round(keras.ops.sigmoid(projected)))
