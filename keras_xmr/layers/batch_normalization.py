"""Batch normalisation as the released models have it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_xmr")
class MaskedBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalisation over what counts alone, of all replicas if it is synchronized.

    That of Keras is not synchronized where it has a mask. Inputs are features (B, L, ...) and a
    boolean mask (B, L), or None if all count; outputs are features of that shape, 0 where the
    mask is false.
    """

    def call(self, features: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is None:
            return super().call(features, training=training)
        places = tf.where(mask)
        counted = super().call(tf.gather_nd(features, places)[None], training=training)[0]
        scattered = tf.scatter_nd(places, counted, tf.shape(features, out_type=tf.int64))
        return tf.ensure_shape(scattered, features.shape)


def batch_normalization(*, masked: bool = False, **options: Any) -> keras.layers.BatchNormalization:
    """Batch normalisation with the constants of PyTorch, which the published models had.

    Under several replicas the statistics are those of the global batch, so that replicas train
    as one device would.

    Args:
        masked: Whether it takes a mask.
        **options: Passed on to `keras.layers.BatchNormalization`.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    constants = {"momentum": 0.9, "epsilon": 1e-5, "synchronized": replicas > 1}
    make = MaskedBatchNormalization if masked else keras.layers.BatchNormalization
    return make(**(constants | options))
