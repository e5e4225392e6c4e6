"""Self-attention that gathers local features into a few vectors."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers.part import RecordedLayer


@keras.saving.register_keras_serializable(package="keras_xmr")
class LocalAttention(RecordedLayer):
    """K weighted means of local features, softmax(w2 tanh(w1 x)) over the positions.

    The attention of the local branch of Song and Soleymani 2019, and of Chun et al. 2021, Fig. 3.
    Positions that the mask leaves out have a weight of exactly 0.

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
        logits = keras.ops.tanh(features @ self.w1) @ self.w2
        logits = keras.ops.transpose(keras.ops.cast(logits, "float32"), (0, 2, 1))
        if mask is not None:
            logits = keras.ops.where(mask[:, None, :], logits, -float("inf"))
        # The softmax of Keras warns of a single position, which precomputed features may have.
        weights = keras.ops.exp(keras.ops.log_softmax(logits, axis=-1))
        return keras.ops.cast(weights, features.dtype) @ features, weights
