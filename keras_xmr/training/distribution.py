"""What the workers of a training do together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from data_pipelines.errors import UserError
from keras_xmr.training.cluster import Cluster
from keras_xmr.training.strategy import make_strategy

Result = TypeVar("Result")

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError)
"""What TensorFlow raises where another worker has ended."""


def lost_worker(error: tf.errors.OpError) -> UserError:
    """What to tell the user of one of `LOST`: who has ended, as far as it says, and what to do."""
    lost = set(re.findall(r"/job:(\w+)/replica:0/task:(\d+)$", error.message, re.MULTILINE))
    names = ", ".join(" ".join(worker) for worker in sorted(lost)) or error.message
    return UserError(
        f"another worker has ended ({names}); what it says tells why. Start all of them again: "
        "the training goes on at its last checkpoint"
    )


class Distribution:
    """The devices that train a model, of this machine or of several.

    Every worker must call the same methods in the same order: each waits for all others. Where
    there is one worker they do nothing.

    Args:
        batch_size: The global batch.
        devices: How many devices of this machine; None takes all.
        cluster: The workers, and which of them this process is.

    Raises:
        UserError: If the devices cannot share a batch evenly.
    """

    def __init__(self, batch_size: int, devices: int | None, cluster: Cluster) -> None:
        self.cluster = cluster
        self.strategy = make_strategy(batch_size, devices, cluster)
        # A function for each signature, none of which is traced twice.
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
        """The numbers of the chief, on all workers.

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

    def chief_first(self, work: Callable[[], Result]) -> Result:
        """Does something once the chief has done it, and may have left files of it."""
        if not self.is_chief:
            self.wait()
        result = work()
        if self.is_chief:
            self.wait()
        return result

    def check_same(self, parts: Mapping[str, str]) -> None:
        """Checks that all workers were started with the same.

        Args:
            parts: Texts, by what they are to the user.

        Raises:
            UserError: On all workers, if one has another text than the chief.
        """
        if self.is_alone:
            return
        digests = [hashlib.sha256(text.encode()).digest()[:8] for text in parts.values()]
        own = np.frombuffer(b"".join(digests), np.int64)
        (of_chief,) = self.from_chief([own])
        (differ,) = self._summed([np.not_equal(own, of_chief).astype(np.int64)])
        if wrong := [name for name, count in zip(parts, differ.numpy(), strict=True) if count]:
            raise UserError(
                f"the workers do not have the same {wrong[0]}; start all of them with the same "
                "config, on copies of the same records"
            )

    @property
    def devices(self) -> int:
        """How many devices of this worker share its parts of the batches."""
        return int(self.strategy.num_replicas_in_sync) // self.cluster.count

    def distribute(self, batches: tf.data.Dataset) -> Any:
        """Batches for the devices of this worker, in turn."""
        if self.strategy.num_replicas_in_sync == 1:
            return batches
        return self.strategy.distribute_datasets_from_function(lambda context: batches)

    def _summed(self, values: Sequence[Any], *, of_chief: bool = False) -> list[tf.Tensor]:
        """The sums of numbers over all devices, or those of the first device of the chief."""
        tensors = [tf.convert_to_tensor(value) for value in values]
        signature = (of_chief, *((tuple(tensor.shape), tensor.dtype) for tensor in tensors))
        if signature not in self._sums:
            self._sums[signature] = tf.function(partial(self._sum, of_chief), autograph=False)
        sums = self._sums[signature](tensors)
        return [self.strategy.experimental_local_results(value)[0] for value in sums]

    def _sum(self, of_chief: bool, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        def of_replica(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            counts = not of_chief or tf.equal(context.replica_id_in_sync_group, 0)
            own = [tf.where(counts, tensor, tf.zeros_like(tensor)) for tensor in tensors]
            # One by one: those of a list would have to be of one dtype.
            return [context.all_reduce(tf.distribute.ReduceOp.SUM, tensor) for tensor in own]

        return self.strategy.run(of_replica, (tensors,))
