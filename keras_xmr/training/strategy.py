"""Where a model trains."""

from __future__ import annotations

import logging

import tensorflow as tf

from data_pipelines.errors import UserError

_LOGGER = logging.getLogger(__name__)


def make_strategy(batch_size: int, count: int | None = None) -> tf.distribute.Strategy:
    """MirroredStrategy if there are several devices, else the one there is.

    Logical CPU devices count where there is no GPU.

    Args:
        batch_size: The global batch, which the devices share.
        count: How many devices; None takes all.

    Raises:
        UserError: If there are not so many, or if they cannot share the batch evenly.
    """
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    names = [device.name for device in devices][:count]
    if count is not None and len(names) < count:
        raise UserError(f"train.devices: {count} are asked for, but there are only {len(names)}")
    if len(names) == 1:
        return tf.distribute.get_strategy()
    if batch_size % len(names):
        raise UserError(
            f"train.batch_size: {batch_size} pairs cannot be shared evenly by {len(names)} "
            f"devices; {batch_size // len(names) * len(names)} or "
            f"{-(-batch_size // len(names)) * len(names)} can"
        )
    _LOGGER.info("training on %d devices: %s", len(names), ", ".join(names))
    return tf.distribute.MirroredStrategy(names)
