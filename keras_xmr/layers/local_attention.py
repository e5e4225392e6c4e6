"""Local attention, and its residual of a global vector."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers.l2_normalize import L2Normalize
from keras_xmr.layers.part import RecordedLayer
from keras_xmr.layers.rezero import ReZero


class LocalAttention(RecordedLayer):
    """K weighted means of local features, softmax(w2 tanh(w1 x)) over the positions.

    The attention of the local branch of Song and Soleymani 2019, and of Chun et al. 2021, Fig. 3.
    Masked positions have a weight of exactly 0.

    Args:
        hidden: Width of the hidden layer; None takes half of the width of the features.
        heads: K.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are features (B, L, F) and a boolean mask (B, L) or None. Outputs are the means
    (B, K, F) and the weights (B, K, L).
    """

    def __init__(self, hidden: int | None = None, heads: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.hidden = hidden
        self.heads = heads

    def build(self, features_shape: tuple[Any, ...]) -> None:
        width = features_shape[-1]
        hidden = self.hidden or max(width // 2, 1)
        self.w1 = self.add_weight(name="w1", shape=(width, hidden), initializer="glorot_uniform")
        self.w2 = self.add_weight(
            name="w2", shape=(hidden, self.heads), initializer="glorot_uniform"
        )

    def call(self, features: Any, mask: Any = None) -> tuple[Any, Any]:
        # The gradient of a batched product would hold one of `w1` for each item of the batch.
        hidden = keras.ops.tanh(keras.ops.tensordot(features, self.w1, axes=1))
        logits = keras.ops.tensordot(hidden, self.w2, axes=1)
        logits = keras.ops.transpose(keras.ops.cast(logits, "float32"), (0, 2, 1))
        if mask is not None:
            logits = keras.ops.where(mask[:, None, :], logits, -float("inf"))
        # The softmax of Keras warns of a single position, which precomputed features may have.
        weights = keras.ops.exp(keras.ops.log_softmax(logits, axis=-1))
        return keras.ops.cast(weights, features.dtype) @ features, weights


class LocalResidual(RecordedLayer):
    """K vectors LayerNorm(global + s(linear(local attention))) on the unit sphere.

    The embedding of Song and Soleymani 2019, Eq. 2 and 3, where s is a sigmoid.

    Args:
        dimension: D.
        heads: K.
        activation: The name of s in `keras.activations`.
        dropout: Part of the residuals that is dropped in training.
        rezero: Whether the residuals have a factor that begins at 0, in place of the LayerNorm,
            so that all K vectors begin as the global one.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are features (B, L, F), a global vector (B, D), and a boolean mask (B, L) or None.
    Outputs are the vectors and the residuals s(...), float32 (B, K, D).
    """

    def __init__(
        self,
        dimension: int,
        heads: int = 1,
        activation: str = "sigmoid",
        dropout: float = 0.0,
        rezero: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension
        self.heads = heads
        self.activation = activation
        self.dropout_rate = dropout
        self.rezero = rezero
        self.attention = LocalAttention(heads=heads, dtype=self.dtype_policy, name="attention")
        self.linear = keras.layers.Dense(
            dimension, activation=activation, dtype=self.dtype_policy, name="linear"
        )
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")
        if rezero:
            self.factor = ReZero(name="factor")
        else:
            self.norm = keras.layers.LayerNormalization(epsilon=1e-5, dtype="float32", name="norm")
        self.l2 = L2Normalize(dtype="float32", name="l2")

    def build(self, features_shape: tuple[Any, ...], pooled_shape: Any = None) -> None:
        self.attention.build(features_shape)
        self.linear.build((features_shape[0], self.heads, features_shape[-1]))
        if not self.rezero:
            self.norm.build((features_shape[0], self.heads, self.dimension))

    def call(self, features: Any, pooled: Any, mask: Any = None) -> tuple[Any, Any]:
        local, _ = self.attention(features, mask=mask)
        residuals = self.dropout(keras.ops.cast(self.linear(local), "float32"))
        vectors = keras.ops.cast(pooled, "float32")[:, None, :]
        if self.rezero:
            return self.l2(vectors + self.factor(residuals)), residuals
        return self.l2(self.norm(vectors + residuals)), residuals
