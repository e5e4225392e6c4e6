"""Operations that TensorFlow does faster than `keras.ops`, or that it alone can do.

Of layers, heads, matchers and losses, this module and `packed_gru` alone import TensorFlow; they
are imported where Keras runs on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_xmr.parts.tensors import Tensor


def num_replicas() -> int:
    """Returns the number of replicas of the current strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def read_variables(variables: Any) -> list[Tensor]:
    """Reads variables once, and tensors as they are: `keras.ops` would give variables themselves,
    and their gradients twice; `tf.custom_gradient` takes none.
    """
    return [tf.convert_to_tensor(variable) for variable in variables]


def is_eager() -> bool:
    """Says whether operations run one by one, for one replica."""
    return tf.executing_eagerly() and not tf.distribute.has_strategy()


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Makes a graph of a function of tensors."""
    return tf.function(function, autograph=False)


def fresh_seed() -> Tensor:
    """Draws two numbers, int32 (2,): in a graph, others in each step."""
    return tf.random.uniform((2,), maxval=tf.int32.max, dtype=tf.int32)


def split_seed(seed: Tensor) -> tuple[Tensor, Tensor]:
    """Derives two stateless seeds of one, int (2,)."""
    first, second = tf.unstack(tf.random.split(tf.cast(seed, tf.int32), 2))
    return first, second


def map_in_order(
    function: Callable[[Any], list[Tensor]], tiles: object, outputs: int
) -> list[Tensor]:
    """Applies a function to one tile after the other.

    `keras.ops.map` would have ten tiles in memory at once, and compute the first one twice.

    Args:
        function: Makes tensors of a tile, in the precision of its numbers.
        tiles: Tensors (T, ...), in any structure.
        outputs: Number of tensors that it makes.
    """
    dtype = next(tensor.dtype for tensor in tf.nest.flatten(tiles) if tensor.dtype.is_floating)
    signature = [tf.TensorSpec(None, dtype)] * outputs
    return tf.map_fn(function, tiles, fn_output_signature=signature, parallel_iterations=1)


def on_valid_positions(
    function: Callable[[Tensor], Tensor], features: Tensor, mask: Tensor
) -> Tensor:
    """Applies a function to valid positions (1, P, ...) of features (B, L, ...); others are 0."""
    places = tf.where(mask)
    counted = function(tf.gather_nd(features, places)[None])[0]
    scattered = tf.scatter_nd(places, counted, tf.shape(features, out_type=tf.int64))
    return tf.ensure_shape(scattered, features.shape)


_SMALLEST = 1e-24
"""Squares of lengths below count as this."""


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Returns cosines (N, M) of vectors (N, D) and (M, D), with a shorter gradient."""

    @tf.custom_gradient
    def measure(left: Tensor, right: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
        rows, columns = _unit(left), _unit(right)

        def backward(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return (
                _slope(tf.matmul(upstream, columns[0]), *rows),
                _slope(tf.matmul(upstream, rows[0], transpose_a=True), *columns),
            )

        return tf.matmul(rows[0], columns[0], transpose_b=True), backward

    return measure(*read_variables((left, right)))


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns vectors divided by their lengths, one over these, and their squares (N, 1)."""
    squares = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)
    least = tf.maximum(squares, _SMALLEST)
    inverse = tf.sqrt(least) / least  # NaN, and not 0, where the squares overflow.
    return vectors * inverse, inverse, squares


def _slope(upstream: Tensor, units: Tensor, inverse: Tensor, squares: Tensor) -> Tensor:
    """Returns the gradient by vectors of a gradient by vectors of length 1."""
    along = tf.reduce_sum(upstream * units, axis=1, keepdims=True)
    along = tf.where(squares > _SMALLEST, along, tf.zeros_like(along))
    return (upstream - units * along) * inverse


def distances(left: Tensor, right: Tensor, least: float, *numbers: Tensor) -> Tensor:
    """Returns roots (N, M) of squared distances plus a number, with a shorter gradient.

    With a scale and a shift, it is shift - scale * root.
    """

    @tf.custom_gradient
    def measure(left: Tensor, right: Tensor, *numbers: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        center = tf.stop_gradient(_mean(left))
        left, right = left - center, right - center
        columns = tf.reduce_sum(tf.square(right), axis=1) + least
        squares = tf.reduce_sum(tf.square(left), axis=1, keepdims=True) + columns
        squares = squares - 2.0 * tf.matmul(left, right, transpose_b=True)
        roots = tf.sqrt(tf.maximum(squares, least))

        def backward(upstream: Tensor) -> tuple[Tensor, ...]:
            ratio = upstream / roots
            if numbers:
                ratio = -numbers[0] * ratio
            rows, columns = (tf.reduce_sum(ratio, axis)[:, None] for axis in (1, 0))
            slopes = (
                rows * left - tf.matmul(ratio, right),
                columns * right - tf.matmul(ratio, left, transpose_a=True),
            )
            if not numbers:
                return slopes
            return *slopes, -tf.reduce_sum(upstream * roots), tf.reduce_sum(upstream)

        return numbers[1] - numbers[0] * roots if numbers else roots, backward

    return measure(*read_variables((left, right, *numbers)))


def _mean(vectors: Tensor) -> Tensor:
    """Returns the mean of vectors (1, D), by a product, which takes a third of the time."""
    count = tf.shape(vectors)[0]
    ones = tf.ones((1, count), vectors.dtype)
    return tf.matmul(ones / tf.cast(count, vectors.dtype), vectors)


def gather_items(tensor: Tensor) -> Tensor:
    """Concatenates tensors (n, ...) of all replicas; gradients flow back, summed over replicas."""
    # Tensors straight from the data have no device, which several workers need.
    gathered = tf.distribute.get_replica_context().all_gather(tf.identity(tensor), axis=0)
    # The gradient of all_gather takes no slices, as `take` makes; reshape makes them dense.
    gathered = tf.reshape(gathered, tf.shape(gathered))
    return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])


def gather_equal_counts(tensor: Tensor) -> Tensor:
    """Concatenates tensors of all replicas, which have as many items each."""
    if num_replicas() == 1:
        return tensor
    return tf.ensure_shape(
        gather_items(tensor), [num_replicas() * tensor.shape[0], *tensor.shape[1:]]
    )


def items_before(items: int) -> Tensor:
    """Returns the number of items of the replicas before this one, which have as many each."""
    return items * tf.distribute.get_replica_context().replica_id_in_sync_group
