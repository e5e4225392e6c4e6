"""One batch on several replicas: gathering, sums, and the logs of each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.layers.tensorflow_paths import num_replicas

Tensor = Any


class LocalItems(NamedTuple):
    """The items of a replica: `size` items of the global batch, from `first` on."""

    first: Tensor
    size: Tensor

    def take(self, tensor: Tensor) -> Tensor:
        """Selects these items from all."""
        items = tensor[self.first : self.first + self.size]
        return tf.ensure_shape(items, [None, *tensor.shape[1:]])


def gather(tree: Any) -> tuple[Any, LocalItems]:
    """Concatenates the tensors of all replicas; also returns which items are of this replica.

    They travel as one tensor, since each round over the network is costly. Gradients flow back to
    floats.

    Args:
        tree: Tensors (n, ...) of the items of this replica.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tree)]
    replica, size = _replica_number(tf.distribute.get_replica_context()), tf.shape(tensors[0])[0]
    columns = [tf.fill([size, 1], replica), *map(_columns, tensors)]
    packed = _gather(tf.concat(columns, axis=1))
    owners, *parts = tf.split(packed, [tf.shape(part)[1] for part in columns], axis=1)
    gathered = [_restored(*pair) for pair in zip(parts, tensors, strict=True)]
    local = LocalItems(_count_before(owners, replica), size)
    return tf.nest.pack_sequence_as(tree, gathered), local


def gather_batch(
    image: Embedding, caption: Embedding, y: dict[str, Tensor]
) -> tuple[tuple[Embedding, Embedding, dict[str, Tensor]], LocalItems]:
    """Gathers the global batch, and returns which images are of this replica."""
    caption_targets = {name: tensor for name, tensor in y.items() if name.startswith("caption_")}
    if not caption_targets:
        return gather((image, caption, y))
    image_targets = {name: tensor for name, tensor in y.items() if name not in caption_targets}
    (image, image_targets), images = gather((image, image_targets))
    (caption, caption_targets), _ = gather((caption, caption_targets))
    return (image, caption, image_targets | caption_targets), images


@tf.custom_gradient
def _gather(rows: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Gathers rows (n, D) of all replicas; their first number is that of the replica.

    The gradient of TensorFlow would communicate the sizes of the parts again.
    """
    context = tf.distribute.get_replica_context()
    # Tensors straight from the data have no device, which several workers need.
    gathered = context.all_gather(tf.identity(rows), axis=0)

    def gradient(upstream: Tensor) -> Tensor:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, upstream)
        first = _count_before(gathered[:, 0], _replica_number(context))
        return sums[first : first + tf.shape(rows)[0]]

    return gathered, gradient


def _replica_number(context: tf.distribute.ReplicaContext) -> Tensor:
    return tf.cast(context.replica_id_in_sync_group, tf.float32)


def _count_before(owners: Tensor, replica: Tensor) -> Tensor:
    """Number of items of the replicas before this one."""
    return tf.math.count_nonzero(owners < replica, dtype=tf.int32)


def _columns(tensor: Tensor) -> Tensor:
    """A tensor (n, ...) as float32 (n, D), without loss but of float64."""
    if not tensor.dtype.is_floating:
        # 16 bits of a whole number are one that float32 holds.
        tensor = tf.bitcast(tf.cast(tensor, tf.int64), tf.uint16)
    shape = tf.shape(tensor)
    return tf.reshape(tf.cast(tensor, tf.float32), [shape[0], tf.reduce_prod(shape[1:])])


def _restored(columns: Tensor, like: Tensor) -> Tensor:
    """Inverts `_columns` for a tensor like this one."""
    shape = tf.concat([[-1], tf.shape(like)[1:]], axis=0)
    if like.dtype.is_floating:
        values = tf.reshape(columns, shape)
    else:
        pieces = tf.reshape(columns, tf.concat([shape, [4]], axis=0))
        values = tf.bitcast(tf.cast(pieces, tf.uint16), tf.int64)
    return tf.cast(tf.ensure_shape(values, [None, *like.shape[1:]]), like.dtype)


def pad_to_longest(embedding: Embedding) -> Embedding:
    """Pads tokens to the longest of all replicas, since each pads its part alone."""
    if embeddings.kind(embedding) != "tokens":
        return embedding
    context = tf.distribute.get_replica_context()
    length = tf.shape(embedding["mask"])[1]
    spare = tf.reduce_max(context.all_gather(length[None], axis=0)) - length
    return embedding | {
        "tokens": tf.pad(embedding["tokens"], [[0, 0], [0, spare], [0, 0]]),
        "mask": tf.pad(embedding["mask"], [[0, 0], [0, spare]]),
    }


def sum_over_replicas(
    tensors: Sequence[Tensor], scalars: Sequence[Tensor]
) -> tuple[list[Tensor], Any]:
    """Sums float tensors and scalars over the replicas, all at once."""
    if num_replicas() == 1:
        return list(tensors), scalars
    context = tf.distribute.get_replica_context()
    both = [*tensors, tf.stack([tf.cast(scalar, tf.float32) for scalar in scalars])]
    *sums, values = context.all_reduce(tf.distribute.ReduceOp.SUM, both)
    return sums, tf.unstack(values)


def accept_summed_gradients(optimizer: Any) -> None:
    """Makes an optimizer accept gradients as sums over all replicas, without summing them again.

    Keras has no option for it. Its `LossScaleOptimizer` even relies on it: by the gradients of
    one replica it decides for all whether a step is skipped, and only then they are summed.

    Args:
        optimizer: Any optimizer of Keras, or one in a `LossScaleOptimizer`.
    """
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list


_ALL = "logs"


class StepLogs(keras.Model):
    """A model with steps that return `step_logs()`.

    Keras reduces the logs of several workers one by one, and each of these reductions is a round
    over the network in every step. Here they travel as one vector, and are named afterwards.
    """

    train_function: Any
    test_function: Any
    _log_names: tuple[str, ...] = ()

    def step_logs(self) -> dict[str, Tensor]:
        """The results of the metrics of this replica, as a step returns them."""
        logs = self.get_metrics_result()
        if not isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return logs
        self._log_names = tuple(logs)
        # Keras averages the first axis of the logs of several workers (keras-team/keras#20585).
        return {_ALL: tf.stack([tf.cast(value, tf.float32) for value in logs.values()])[None]}

    def make_train_function(self, force: bool = False) -> None:
        """Makes the function that `fit` calls for each step."""
        if self.train_function is None or force:
            super().make_train_function(force)
            self.train_function = self._named(self.train_function)

    def make_test_function(self, force: bool = False) -> None:
        """Makes the function that `evaluate` calls for each step."""
        if self.test_function is None or force:
            super().make_test_function(force)
            self.test_function = self._named(self.test_function)

    def _named(self, function: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any], Any]:
        def named(iterator: Any) -> dict[str, Tensor]:
            logs = function(iterator)
            if not self._log_names:
                return logs
            values = tf.reshape(logs[_ALL], [len(self._log_names)])
            return dict(zip(self._log_names, tf.unstack(values), strict=True))

        return named
