"""Batch normalisation as the released models have it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def batch_normalization(**options: Any) -> keras.layers.BatchNormalization:
    """Batch normalisation with the constants of PyTorch, which the published models had.

    Under several replicas the statistics are those of the global batch, so that replicas train
    as one device would.

    Args:
        **options: Passed on to `keras.layers.BatchNormalization`.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    constants = {"momentum": 0.9, "epsilon": 1e-5, "synchronized": replicas > 1}
    return keras.layers.BatchNormalization(**(constants | options))
