"""Self-attention that makes one vector of tokens."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_xmr.layers.l2_normalize import l2_normalize
from keras_xmr.layers.normalization import batch_normalization
from keras_xmr.layers.part import RecordedLayer


class GlobalAttention(RecordedLayer):
    """A mean of tokens, weighted by how they agree with their plain mean, on the unit sphere.

    The weights are softmax(w (tanh(W1 token) * tanh(W2 mean))), from Diao et al. 2021, section
    3.2. For images the released code batch-normalises both before tanh: W1 token with separate
    statistics for each position in the list of regions. Where the number of regions varies, a
    position means nothing, and all share their statistics.

    Args:
        dropout: Part of the numbers after tanh that are dropped in training.
        batch_norm: Whether there is batch normalisation.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If, with batch normalisation, the number of tokens differs from a fixed one in
            the first call.

    Inputs are tokens (B, L, D), their mask float (B, L), and in training a stateless seed, int
    (2,). The output is (B, D). They are those of the global batch, which every replica has, so
    dropout must not draw from a state of the replica.
    """

    def __init__(self, dropout: float = 0.0, batch_norm: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.common = keras.layers.Dense(1, dtype=self.dtype_policy, name="common")
        if batch_norm:
            self.mean_norm = self._norm("mean_norm")

    def _norm(self, name: str, **options: Any) -> keras.layers.BatchNormalization:
        return batch_normalization(
            name=name, synchronized=False, dtype=self.dtype_policy, **options
        )

    def build(self, tokens_shape: tuple[Any, ...]) -> None:
        batch, self.length, width = tokens_shape
        self.local = keras.layers.Dense(width, dtype=self.dtype_policy, name="local")
        self.mean = keras.layers.Dense(width, dtype=self.dtype_policy, name="mean")
        self.local.build(tokens_shape)
        self.mean.build((batch, width))
        self.common.build(tokens_shape)
        if self.batch_norm and self.length is None:
            self.local_norm = self._norm("local_norm", masked=True)
            self.local_norm.build((*tokens_shape, 1))
        elif self.batch_norm:
            self.local_norm = self._norm("local_norm", axis=1)
            self.local_norm.build(tokens_shape)
        if self.batch_norm:
            self.mean_norm.build((batch, width))

    def call(self, tokens: Any, mask: Any, seed: Any = None) -> Any:
        training = seed is not None
        count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)
        local = self.local(tokens)
        mean = self.mean(ops.sum(tokens * mask[..., None], axis=1) / count)
        if self.batch_norm:
            local = self._normalize(local, mask, training)
            mean = self.mean_norm(mean, training=training)
        local, mean = ops.tanh(local), ops.tanh(mean)
        if training and self.dropout:
            seeds = tf.random.split(seed, 2)
            local = _dropped(local, self.dropout, seeds[0])
            mean = _dropped(mean, self.dropout, seeds[1])
        logits = self.common(local * mean[:, None, :])[..., 0]
        weights = ops.softmax(ops.where(mask > 0, logits, -1e9), axis=-1)
        return l2_normalize(ops.sum(weights[..., None] * tokens, axis=1))

    def _normalize(self, local: Any, mask: Any, training: bool) -> Any:
        if self.length is None:
            return self.local_norm(local[..., None], training=training, mask=mask > 0)[..., 0]
        length = local.shape[1]
        if length != self.length:
            raise ValueError(
                f"{self.name}: its batch normalisation has statistics for each of {self.length} "
                f"regions, but images have {length or 'any number of'} regions; all images need "
                "the same number"
            )
        # Keras squeezes the statistics of one region away where it has a mask; one always counts.
        return self.local_norm(local, training=training, mask=mask if length > 1 else None)


def _dropped(values: Any, share: float, seed: Any) -> Any:
    kept = tf.random.stateless_uniform(tf.shape(values), seed) >= share
    return ops.where(kept, values / (1.0 - share), 0.0)
