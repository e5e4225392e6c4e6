"""One batch on several replicas: what they gather and add up, and which part of it is whose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.queries_base import Queries

Tensor = Any


class Part(NamedTuple):
    """The items of a replica: `size` of the `count` in the global batch, from `first` on."""

    first: Tensor
    size: Tensor
    count: Tensor

    def of(self, tensor: Tensor) -> Tensor:
        """These items of all."""
        own = tensor[self.first : self.first + self.size]
        return tf.ensure_shape(own, [None, *tensor.shape[1:]])

    @property
    def share(self) -> Tensor:
        """Which part of the batch they are."""
        return tf.cast(self.size, tf.float32) / tf.cast(self.count, tf.float32)


def num_replicas() -> int:
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def gather(tree: Any) -> tuple[Any, Part]:
    """The tensors of all replicas, one replica after another, and which items are its own.

    They go as one tensor, through which gradients flow back to floats: each round over the network
    has a price, however little it brings.

    Args:
        tree: Tensors (n, ...) of the items of this replica.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tree)]
    own, size = _own_number(tf.distribute.get_replica_context()), tf.shape(tensors[0])[0]
    columns = [tf.fill([size, 1], own), *map(_columns, tensors)]
    packed = _gather(tf.concat(columns, axis=1))
    owners, *parts = tf.split(packed, [tf.shape(part)[1] for part in columns], axis=1)
    found = [_restored(*pair) for pair in zip(parts, tensors, strict=True)]
    part = Part(_count_before(owners, own), size, tf.shape(owners)[0])
    return tf.nest.pack_sequence_as(tree, found), part


def gather_batch(
    image: Embedding, caption: Embedding, y: dict[str, Tensor]
) -> tuple[tuple[Embedding, Embedding, dict[str, Tensor]], tuple[Part, Part]]:
    """The global batch, and which images and which captions of it are those of this replica."""
    of_captions = {name: tensor for name, tensor in y.items() if name.startswith("caption_")}
    if not of_captions:
        found, part = gather((image, caption, y))
        return found, (part, part)
    of_images = {name: tensor for name, tensor in y.items() if name not in of_captions}
    (image, of_images), images = gather((image, of_images))
    (caption, of_captions), captions = gather((caption, of_captions))
    return (image, caption, of_images | of_captions), (images, captions)


def shares(
    whole: Queries,
    parts: tuple[Part, Part],
    local: tuple[Embedding, Embedding],
    score: Callable[[Embedding, Embedding], Tensor] | None,
    exchange: Callable[[Tensor], Tensor],
) -> tuple[Queries, Queries]:
    """The images and the captions of a replica, as queries.

    Args:
        whole: All images of the global batch, as queries.
        parts: Which images, and which captions, are those of the replica.
        local: Their embeddings as its towers have made them.
        score: Scores images with captions; None where the scores of all pairs are computed anyway.
        exchange: Makes of a scalar those of all replicas.
    """
    found = []
    for number, side in enumerate((whole, whole.turned())):
        part = parts[number]
        own = {name: part.of(tensor) for name, tensor in side.queries.items()}
        own |= {name: tensor for name, tensor in local[number].items() if name not in own}

        def scores(side: Queries = side, part: Part = part, own: Embedding = own) -> Tensor:
            if score is None:
                return part.of(side.scores)
            if side is whole:
                return score(own, side.candidates)
            return tf.transpose(score(side.candidates, own))

        related = {name: part.of(values) for name, values in side.relations.items()}
        found.append(
            Queries(
                scores,
                own,
                side.candidates,
                related,
                batch_positives=side.positives,
                share=part.share,
                first=part.first,
                exchange=exchange,
            )
        )
    return found[0], found[1]


@tf.custom_gradient
def _gather(rows: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Rows (n, D) of all replicas, whose first number is that of the replica.

    The gradient that TensorFlow has of it asks for the sizes of the parts again.
    """
    context = tf.distribute.get_replica_context()
    # What comes straight from the data has no device, and several workers ask for one.
    found = context.all_gather(tf.identity(rows), axis=0)

    def gradient(upstream: Tensor) -> Tensor:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, upstream)
        first = _count_before(found[:, 0], _own_number(context))
        return sums[first : first + tf.shape(rows)[0]]

    return found, gradient


def _own_number(context: tf.distribute.ReplicaContext) -> Tensor:
    return tf.cast(context.replica_id_in_sync_group, tf.float32)


def _count_before(owners: Tensor, own: Tensor) -> Tensor:
    """How many items are of replicas before this one."""
    return tf.math.count_nonzero(owners < own, dtype=tf.int32)


def _columns(tensor: Tensor) -> Tensor:
    """A tensor (n, ...) as float32 (n, D), without loss but of float64."""
    if not tensor.dtype.is_floating:
        # 16 bits of a whole number are one that float32 holds.
        tensor = tf.bitcast(tf.cast(tensor, tf.int64), tf.uint16)
    shape = tf.shape(tensor)
    return tf.reshape(tf.cast(tensor, tf.float32), [shape[0], tf.reduce_prod(shape[1:])])


def _restored(columns: Tensor, like: Tensor) -> Tensor:
    """What `_columns` has made of tensors like this one."""
    shape = tf.concat([[-1], tf.shape(like)[1:]], axis=0)
    if like.dtype.is_floating:
        found = tf.reshape(columns, shape)
    else:
        pieces = tf.reshape(columns, tf.concat([shape, [4]], axis=0))
        found = tf.bitcast(tf.cast(pieces, tf.uint16), tf.int64)
    return tf.cast(tf.ensure_shape(found, [None, *like.shape[1:]]), like.dtype)


def same_length(embedding: Embedding) -> Embedding:
    """Tokens padded to the longest of all replicas: each may have padded a batch of its own."""
    if embeddings.kind(embedding) != "tokens":
        return embedding
    context = tf.distribute.get_replica_context()
    length = tf.shape(embedding["mask"])[1]
    spare = tf.reduce_max(context.all_gather(length[None], axis=0)) - length
    return embedding | {
        "tokens": tf.pad(embedding["tokens"], [[0, 0], [0, spare], [0, 0]]),
        "mask": tf.pad(embedding["mask"], [[0, 0], [0, spare]]),
    }


def summed(tensors: Sequence[Tensor], scalars: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
    """The sums of float tensors over the replicas, and those of scalars, all at once."""
    if num_replicas() == 1:
        return list(tensors), scalars
    context = tf.distribute.get_replica_context()
    both = [*tensors, tf.stack([tf.cast(scalar, tf.float32) for scalar in scalars])]
    *sums, values = context.all_reduce(tf.distribute.ReduceOp.SUM, both)
    return sums, tf.unstack(values)


def of_every_replica(value: Tensor) -> Tensor:
    """A scalar of all replicas, float32 (R,), without a gradient."""
    replicas = num_replicas()
    context = tf.distribute.get_replica_context()
    own = tf.one_hot(context.replica_id_in_sync_group, replicas, on_value=True, off_value=False)
    places = tf.where(own, tf.stop_gradient(value), tf.zeros([replicas]))
    return context.all_reduce(tf.distribute.ReduceOp.SUM, places)
