"""Where a model trains."""

from __future__ import annotations

import logging
import os

import tensorflow as tf

from data_pipelines.errors import UserError
from keras_xmr.training.cluster import Cluster

_LOGGER = logging.getLogger(__name__)


def limit_threads(count: int | None) -> None:
    """Says how many threads share one operation, before TensorFlow computes anything.

    Args:
        count: The threads. None, or TF_NUM_INTRAOP_THREADS in the environment, leaves it.
    """
    if count is None or "TF_NUM_INTRAOP_THREADS" in os.environ:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:
        _LOGGER.info("TensorFlow has begun: train.operation_threads comes too late")


def make_strategy(
    batch_size: int, count: int | None = None, cluster: Cluster | None = None
) -> tf.distribute.Strategy:
    """MultiWorkerMirroredStrategy for several workers, MirroredStrategy for several devices.

    Logical CPU devices count where there is no GPU. For several workers it must be made before
    TensorFlow computes anything, and it waits for all of them.

    Args:
        batch_size: The global batch, which the devices share.
        count: How many devices of this machine; None takes all.
        cluster: Those that train together; None is this process alone.

    Raises:
        UserError: If there are not so many, or if they cannot share the batch evenly.
    """
    if cluster is not None and cluster.count > 1:
        return _of_workers(batch_size, count, cluster)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    names = [device.name for device in devices][:count]
    _check_count(count, len(names))
    if len(names) == 1:
        return tf.distribute.get_strategy()
    _check_batch(batch_size, len(names))
    _LOGGER.info("training on %d devices: %s", len(names), ", ".join(names))
    return tf.distribute.MirroredStrategy(names)


def _of_workers(batch_size: int, count: int | None, cluster: Cluster) -> tf.distribute.Strategy:
    gpus = tf.config.list_physical_devices("GPU")
    if count is not None:
        _check_count(count, max(len(gpus), 1))
        tf.config.set_visible_devices(gpus[:count], "GPU")
    _check_batch(batch_size, cluster.count)
    _LOGGER.info("worker %d of %d: waiting for all of them", cluster.number, cluster.count)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    _check_batch(batch_size, strategy.num_replicas_in_sync)
    _LOGGER.info("training on %d devices of all workers", strategy.num_replicas_in_sync)
    return strategy


def _check_count(count: int | None, found: int) -> None:
    if count is not None and found < count:
        raise UserError(f"train.devices: {count} are asked for, but there are only {found}")


def _check_batch(batch_size: int, devices: int) -> None:
    if batch_size % devices:
        raise UserError(
            f"train.batch_size: {batch_size} pairs cannot be shared evenly by {devices} "
            f"devices; {batch_size // devices * devices} or {-(-batch_size // devices) * devices} "
            "can"
        )
