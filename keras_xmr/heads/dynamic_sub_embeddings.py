"""The head of dynamic visual semantic sub-embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.config.option_types import PositiveInt
from keras_xmr.heads.local_base import LocalHead
from keras_xmr.layers import LocalResidual
from keras_xmr.pooling import Pooling
from keras_xmr.pooling.mean import masked_mean


@keras.saving.register_keras_serializable(package="keras_xmr")
class DynamicSubEmbeddings(LocalHead):
    """K sub-embeddings from multi-head attention, with a dynamic mask: the images of DVSE.

    v_k = LayerNorm(pooled + s(local_k)) on the unit sphere (Wei et al., section III-B). The mask
    round(sigmoid(w2 mean of the features)) says which coordinates the orthogonality loss looks at
    in this item (its Eq. 3). w2 is drawn once and never trained, and rounding has no gradient, so
    the mask is a constant of the item.

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K; 1 is the ablation without sub-embeddings.
        activation: s. The paper says "an activation function"; `DynamicOrthogonality` has what was
            measured. A sigmoid leaves all sub-embeddings alike at the beginning, and the loss
            hardly a gradient to part them.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(
        kind="set",
        keys=("residuals", "mask"),
        attends=True,
        when=(({"rezero": False}, {"begins_as_pooling": False}),),
    )

    def __init__(
        self,
        dimension: int,
        pooling: Callable[[], Pooling] | dict[str, Any],
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
        self.pooling = self.new_pooling("pooling")
        self.residual = LocalResidual(
            dimension, set_size, activation, rezero=rezero, dtype=self.dtype_policy, name="residual"
        )

    def build(self, features_shape: tuple[Any, ...]) -> None:
        super().build(features_shape)
        # A weight of the head itself: what is frozen as a layer would be trained again with the
        # next phase.
        self.mask_projection = self.add_weight(
            name="mask_projection",
            shape=(features_shape[-1], self.dimension),
            initializer="glorot_uniform",
            dtype="float32",
            trainable=False,
        )

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        pooled = self.pooling(features, mask=mask)
        points, residuals = self.residual(features, pooled, mask=mask)
        return {"points": points, "residuals": residuals, "mask": self._mask(features, mask)}

    def _mask(self, features: Any, mask: Any) -> Any:
        """The dynamic mask, 0 or 1, float32 (B, D)."""
        mean = masked_mean(keras.ops.cast(features, "float32"), mask)
        projected = keras.ops.matmul(mean, keras.ops.cast(self.mask_projection, "float32"))
        return keras.ops.stop_gradient(keras.ops.round(keras.ops.sigmoid(projected)))
