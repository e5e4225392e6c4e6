"""Devices and workers of a training, and their collective operations."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from keras_xmr.experiments.runs.cluster import Cluster
from keras_xmr.utils.errors import UserError

_LOGGER = logging.getLogger(__name__)


def limit_threads(count: int | None) -> None:
    """Limits the threads of one operation, before TensorFlow computes anything.

    Args:
        count: The threads. None, or TF_NUM_INTRAOP_THREADS in the environment, leaves it.
    """
    if count is None or "TF_NUM_INTRAOP_THREADS" in os.environ:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(count)
    except RuntimeError:
        _LOGGER.info("TensorFlow is already initialized: train.operation_threads has no effect")


def make_strategy(
    batch_size: int, count: int | None = None, cluster: Cluster | None = None
) -> tf.distribute.Strategy:
    """Makes MultiWorkerMirroredStrategy for several workers, MirroredStrategy for several
    devices.

    Logical CPU devices count on machines without a GPU. For several workers it must be made before
    TensorFlow computes anything, and it waits for all of them.

    Args:
        batch_size: The global batch, which the devices share.
        count: Number of devices of this machine; None takes all.
        cluster: Workers that train together; None is this process alone.

    Raises:
        UserError: If there are fewer devices, or if they cannot share the batch evenly.
    """
    if cluster is not None and cluster.count > 1:
        return _multi_worker_strategy(batch_size, count, cluster)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    names = [device.name for device in devices][:count]
    _check_count(count, len(names))
    if len(names) == 1:
        return tf.distribute.get_strategy()
    _check_batch(batch_size, len(names))
    _LOGGER.info("training on %d devices: %s", len(names), ", ".join(names))
    return tf.distribute.MirroredStrategy(names)


def _multi_worker_strategy(
    batch_size: int, count: int | None, cluster: Cluster
) -> tf.distribute.Strategy:
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


def _check_count(count: int | None, available: int) -> None:
    if count is not None and available < count:
        raise UserError(f"train.devices: {count} requested, but only {available} available")


def _check_batch(batch_size: int, devices: int) -> None:
    if batch_size % devices:
        raise UserError(
            f"train.batch_size: {batch_size} pairs cannot be shared evenly by {devices} "
            f"devices; {batch_size // devices * devices} or {-(-batch_size // devices) * devices} "
            "can"
        )


LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError)
"""Errors that TensorFlow raises when another worker has ended."""


def lost_worker(error: tf.errors.OpError) -> UserError:
    """Converts one of `LOST` into a message: the ended worker, and the remedy."""
    lost = set(re.findall(r"/job:(\w+)/replica:0/task:(\d+)$", error.message, re.MULTILINE))
    names = ", ".join(" ".join(worker) for worker in sorted(lost)) or error.message
    return UserError(
        f"another worker has ended ({names}); see its log for the reason. Start all of them "
        "again: the training resumes from its last checkpoint"
    )


class Distribution:
    """The devices that train a model, of this machine or of several.

    Every worker must call the same methods in the same order: each waits for all others. Where
    there is one worker they do nothing.

    Args:
        batch_size: The global batch.
        devices: Number of devices of this machine; None takes all.
        cluster: The workers, and which of them this process is.

    Raises:
        UserError: If the devices cannot share a batch evenly.
    """

    def __init__(self, batch_size: int, devices: int | None, cluster: Cluster) -> None:
        self.cluster = cluster
        self.strategy = make_strategy(batch_size, devices, cluster)
        # One traced function per signature.
        self._sums: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @property
    def is_alone(self) -> bool:
        """Whether this is the only worker."""
        return self.cluster.count == 1

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes."""
        return self.cluster.is_chief

    def from_chief(self, values: Sequence[Any]) -> list[Any]:
        """Returns the numbers of the chief, on all workers.

        Args:
            values: Arrays or tensors; on all workers of the same shapes and dtypes.
        """
        if self.is_alone:
            return list(values)
        return self._summed(values, of_chief=True)

    def share(self, variables: Sequence[tf.Variable]) -> None:
        """Gives variables the values that they have at the chief."""
        if self.is_alone:
            return
        for variable, value in zip(variables, self.from_chief(variables), strict=True):
            variable.assign(value)

    def wait(self) -> None:
        """Waits for all workers to come here."""
        self.from_chief([0])

    @contextmanager
    def chief_first(self) -> Iterator[None]:
        """Does the work of a block on the chief first, then on the others, which read its files."""
        if not self.is_chief:
            self.wait()
        yield
        if self.is_chief:
            self.wait()

    def check_same(self, texts: Mapping[str, str]) -> None:
        """Checks that all workers were started with the same.

        Args:
            texts: Texts, by their name for the user.

        Raises:
            UserError: On all workers, if one has another text than the chief.
        """
        if self.is_alone:
            return
        digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts.values()]
        digest = np.frombuffer(b"".join(digests), np.int64)
        (expected,) = self.from_chief([digest])
        (differ,) = self._summed([np.not_equal(digest, expected).astype(np.int64)])
        if wrong := [name for name, count in zip(texts, differ.numpy(), strict=True) if count]:
            raise UserError(
                f"the workers do not have the same {wrong[0]}; start all of them with the same "
                "config, on copies of the same records"
            )

    @property
    def devices(self) -> int:
        """Number of devices of this worker that share its parts of the batches."""
        return int(self.strategy.num_replicas_in_sync) // self.cluster.count

    def distribute(self, batches: tf.data.Dataset) -> Any:
        """Batches for the devices of this worker, in turn."""
        if self.strategy.num_replicas_in_sync == 1:
            return batches
        return self.strategy.distribute_datasets_from_function(lambda context: batches)

    def _summed(self, values: Sequence[Any], *, of_chief: bool = False) -> list[tf.Tensor]:
        """Returns the sums of numbers over all devices, or over the first device of the
        chief.
        """
        tensors = [tf.convert_to_tensor(value) for value in values]
        signature = (of_chief, *((tuple(tensor.shape), tensor.dtype) for tensor in tensors))
        if signature not in self._sums:
            self._sums[signature] = tf.function(partial(self._sum, of_chief), autograph=False)
        sums = self._sums[signature](tensors)
        return [self.strategy.experimental_local_results(value)[0] for value in sums]

    def _sum(self, of_chief: bool, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        def sum_on_replica(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            counts = not of_chief or tf.equal(context.replica_id_in_sync_group, 0)
            masked = [tf.where(counts, tensor, tf.zeros_like(tensor)) for tensor in tensors]
            # One by one: a list would have to be of one dtype.
            return [context.all_reduce(tf.distribute.ReduceOp.SUM, tensor) for tensor in masked]

        return self.strategy.run(sum_on_replica, (tensors,))
