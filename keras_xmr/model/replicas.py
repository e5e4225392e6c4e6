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

    They go as one tensor of all floats, through which gradients flow back, and one of all other
    numbers: a gather has a price, however little it brings.

    Args:
        tree: Tensors (n, ...) of the items of this replica.
    """
    tensors = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tree)]
    context = tf.distribute.get_replica_context()
    own, size = context.replica_id_in_sync_group, tf.shape(tensors[0])[0]
    owners = tf.fill([size], tf.cast(own, tf.int64))
    floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
    others = [tensor for tensor in tensors if not tensor.dtype.is_floating]
    gathered = iter(_gather_packed(floats, tf.float32) if floats else ())
    (owners, *numbers) = _gather_packed([owners, *others], tf.int64)
    rest = iter(numbers)
    found = [next(gathered if tensor.dtype.is_floating else rest) for tensor in tensors]
    before = tf.math.count_nonzero(owners < tf.cast(own, tf.int64), dtype=tf.int32)
    part = Part(before, size, tf.shape(owners)[0])
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


def _gather_packed(tensors: Sequence[Tensor], dtype: tf.DType) -> list[Tensor]:
    """Tensors (n, ...) of all replicas, which travel side by side in one of that dtype."""
    flat = [tf.reshape(tf.cast(tensor, dtype), [tf.shape(tensor)[0], -1]) for tensor in tensors]
    context = tf.distribute.get_replica_context()
    # What comes straight from the data has no device, and several workers ask for one.
    packed = context.all_gather(tf.identity(tf.concat(flat, axis=1)), axis=0)
    parts = tf.split(packed, [tf.shape(columns)[1] for columns in flat], axis=1)
    found = []
    for part, tensor in zip(parts, tensors, strict=True):
        shaped = tf.reshape(part, tf.concat([[-1], tf.shape(tensor)[1:]], axis=0))
        shaped = tf.ensure_shape(shaped, [None, *tensor.shape[1:]])
        found.append(tf.cast(shaped, tensor.dtype))
    return found


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
