"""One batch on several replicas: gathering and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import keras
import tensorflow as tf

from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import Embedding, tensors
from keras_xmr.layers.tensorflow_paths import gather_items, num_replicas
from keras_xmr.parts.tensors import Tensor

_Tree = TypeVar("_Tree")


def gather(tree: _Tree) -> _Tree:
    """Concatenates the tensors (n, ...) of all replicas; gradients flow back to floats."""
    # One by one: the gradient of several at once would need them to be of one shape.
    return tf.nest.map_structure(gather_items, tree)


def first_local_item(count: Tensor) -> Tensor:
    """Returns the position of the first item of this replica, which has `count` of them, among all
    items.
    """
    context = tf.distribute.get_replica_context()
    counts = context.all_gather(count[None], axis=0)
    return tf.reduce_sum(counts[: context.replica_id_in_sync_group])


def pad_to_longest(embedding: Embedding) -> Embedding:
    """Pads tokens to the longest of all replicas, since each pads its part alone."""
    if embeddings.kind(embedding) != "tokens":
        return embedding
    words = tensors(embedding)
    context = tf.distribute.get_replica_context()
    length = tf.shape(words["mask"])[1]
    spare = tf.reduce_max(context.all_gather(length[None], axis=0)) - length
    return words | {
        "tokens": tf.pad(words["tokens"], [[0, 0], [0, spare], [0, 0]]),
        "mask": tf.pad(words["mask"], [[0, 0], [0, spare]]),
    }


def sum_over_replicas(
    tensors: Sequence[Tensor], scalars: Sequence[Tensor]
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Sums float tensors and scalars over the replicas, all at once."""
    if num_replicas() == 1:
        return list(tensors), scalars
    context = tf.distribute.get_replica_context()
    both = [*tensors, tf.stack([tf.cast(scalar, tf.float32) for scalar in scalars])]
    *sums, values = context.all_reduce(tf.distribute.ReduceOp.SUM, both)
    return sums, tf.unstack(values)


def accept_summed_gradients(optimizer: keras.Optimizer) -> None:
    """Makes an optimizer accept gradients as sums over all replicas, without summing them again.

    Keras has no option for it. Its `LossScaleOptimizer` even relies on it: by the gradients of
    one replica it decides for all whether a step is skipped, and only then they are summed.

    Args:
        optimizer: Any optimizer of Keras, or one in a `LossScaleOptimizer`.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list
