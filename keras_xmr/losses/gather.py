"""Embeddings of all processes, devices or replicas as one batch, for losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from numpy.typing import ArrayLike

from keras_xmr.embeddings import Embedding
from keras_xmr.embeddings.validation import as_embedding, items
from keras_xmr.judgements import check_image_ids
from keras_xmr.layers.backend import backend, device_of, is_concrete
from keras_xmr.layers.operations import ops
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array


def gather(
    images: object,
    captions: object,
    image_ids: ArrayLike | None = None,
    *,
    axis_name: str | None = None,
    group: object = None,
) -> tuple[Any, Any, Tensor]:
    """Makes one batch of the embeddings of all processes, so that all items are negatives.

    `loss(*gather(images, captions, image_ids))` is the loss of the whole batch in each process. Its
    gradient flows to the process of each embedding, summed over the processes; so gradients of
    weights that are averaged over processes, as DistributedDataParallel and `jax.lax.pmean` do,
    equal one process on the whole batch. With TensorFlow, where optimizers sum over replicas,
    divide the loss by the number of replicas.

    Args:
        images: Embeddings of the images of this process: a tensor (n, D) or a dict of tensors. With
            JAX and TensorFlow each process has as many, and equally long tokens.
        captions: Embeddings of its captions, m.
        image_ids: The row of each caption's image in this process, int (m,); None if n == m and
            caption i is of image i. An image in two processes counts as two images; of pairs that
            match across processes see `gather_labels`.
        axis_name: With JAX, the axis of `jax.pmap` or `jax.shard_map`; required there.
        group: With PyTorch, the process group; by default all processes.

    Returns:
        Embeddings of N images and of M captions, and int32 (M,): the row of each caption's image
        among the N. Without further processes, those that were given.

    Raises:
        ArgumentError: If `image_ids` do not fit, or `axis_name` is missing or superfluous; with
            PyTorch also if that happens in another process.
    """
    try:
        sides, counts, rows = _checked(images, captions, image_ids, axis_name)
    except Exception:
        if backend() == "torch":
            from keras_xmr.layers.torch_processes import announce_error

            announce_error(group)
        raise
    join, before = _collectives(axis_name, group)
    rows = rows + before(counts[0], rows)
    joined = [keras.tree.map_structure(join, side) for side in sides]
    given = (images, captions)
    both = [_as_given(*pair) for pair in zip(given, joined, strict=True)]
    return both[0], both[1], join(rows)


def gather_labels(labels: object, *, axis_name: str | None = None, group: object = None) -> Tensor:
    """Joins what is known of the items of all processes, such as classes, in the order of `gather`.

    The `positives` of the whole batch follow from it, with pairs that match across processes. With
    classes, or ids in a whole data set, of N images and M captions they are
    `gather_labels(of_images)[:, None] == gather_labels(of_captions)`; with a matrix of all pairs of
    the data set `matrix[gather_labels(of_images)][:, gather_labels(of_captions)]`.

    Args:
        labels: Numbers, or vectors such as attributes, of the items of this process: (n, ...).
        axis_name: As of `gather`.
        group: As of `gather`.

    Returns:
        Labels (N, ...) in the given type, without a gradient. Without further processes, the given
        labels.

    Raises:
        ArgumentError: If they are no numbers, or as of `gather`.
    """
    _check_axis_name(axis_name)
    if not ops.is_tensor(labels):
        labels = as_array(labels, "labels")
        if labels.dtype.kind not in "biuf":
            raise ArgumentError(
                f"labels are numbers, not {labels.dtype}; np.unique(names, return_inverse=True)[1] "
                "numbers the names of a data set"
            )
    with device_of(labels):
        tensor: Tensor = ops.stop_gradient(ops.convert_to_tensor(labels))
        if len(tensor.shape) == 0:
            raise ArgumentError("labels are of the items of a batch, (n, ...), not one number")
        return _collectives(axis_name, group)[0](tensor)


def _check_axis_name(axis_name: str | None) -> None:
    """Checks that an axis is named with JAX alone.

    Raises:
        ArgumentError: If it is not.
    """
    if (backend() == "jax") != (axis_name is not None):
        raise ArgumentError(
            "axis_name names the axis of jax.pmap or jax.shard_map, and is needed with JAX alone"
        )


def _checked(
    images: object, captions: object, image_ids: ArrayLike | None, axis_name: str | None
) -> tuple[list[Embedding], list[int], Tensor]:
    """Returns the embeddings of both sides, their numbers of items, and the rows of images."""
    sides = [as_embedding(images, "images"), as_embedding(captions, "captions")]
    number_of_images, number_of_captions = map(items, sides)
    if number_of_images is None or number_of_captions is None:
        raise ArgumentError("the first axis of embeddings is of a known size; set it in the graph")
    counts = [number_of_images, number_of_captions]
    if is_concrete(image_ids):
        image_ids = check_image_ids(image_ids, *counts)
    _check_axis_name(axis_name)
    return sides, counts, ops.cast(ops.convert_to_tensor(image_ids), "int32")


def _collectives(
    axis_name: str | None, group: object
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Functions that join tensors (n, ...), and that count the items of processes before this."""
    if backend() == "torch":
        from keras_xmr.layers import torch_processes

        gather: Any = partial(torch_processes.gather_items, group=group)
        before: Any = partial(torch_processes.items_before, group=group)
        return gather, before
    if backend() == "jax":
        from jax import lax

        return (
            lambda tensor: lax.all_gather(tensor, axis_name, tiled=True),
            lambda items, _: lax.axis_index(axis_name) * items,
        )
    from keras_xmr.layers.tensorflow_paths import gather_equal_counts, items_before

    return gather_equal_counts, lambda items, _: items_before(items)


def _as_given(given: object, embedding: dict[str, Tensor]) -> Embedding | Tensor:
    """Returns a dict if a dict was given, and a tensor otherwise."""
    return embedding if isinstance(given, dict) else next(iter(embedding.values()))
