"""What TensorFlow does faster, or can do alone: packed GRUs, tiles in order, masked statistics.

The only module of layers, heads, matchers and losses that imports TensorFlow; it is imported where
Keras runs on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from keras_xmr.parts.tensors import Tensor


def num_replicas() -> int:
    """Returns the number of replicas of the current strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def read_variables(variables: Any) -> list[Tensor]:
    """Reads variables once: `keras.ops` would give themselves, and their gradients twice."""
    return [tf.convert_to_tensor(variable) for variable in variables]


def fresh_seed() -> Tensor:
    """Draws two numbers, int32 (2,): in a graph, others in each step."""
    return tf.random.uniform((2,), maxval=tf.int32.max, dtype=tf.int32)


def split_seed(seed: Tensor) -> tuple[Tensor, Tensor]:
    """Derives two stateless seeds of one, int (2,)."""
    first, second = tf.unstack(tf.random.split(tf.cast(seed, tf.int32), 2))
    return first, second


def map_in_order(function: Callable[[Any], list[Tensor]], tiles: Any, outputs: int) -> list[Tensor]:
    """Applies a function to one tile after the other.

    `keras.ops.map` would have ten tiles in memory at once, and compute the first one twice.

    Args:
        function: Makes tensors of a tile, in the precision of its numbers.
        tiles: Tensors (T, ...), in any structure.
        outputs: Number of tensors that it makes.
    """
    dtype = next(part.dtype for part in tf.nest.flatten(tiles) if part.dtype.is_floating)
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


def can_pack() -> bool:
    """Says whether a packed GRU is faster: on a CPU, and not within XLA, which lacks its slices."""
    in_xla = not tf.executing_eagerly() and GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    )
    return not in_xla and not tf.config.list_logical_devices("GPU")


def run_packed_gru(
    layer: keras.layers.GRU, sequences: Tensor, initial_state: Any, mask: Tensor | None
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Runs a GRU over sequences of different lengths without the work of their padding.

    Keras computes every position of the longest sequence of a batch, multiplies inputs step by
    step, and keeps values for the gradient of each step on stacks. Here the valid positions are
    packed, step by step, the longest sequence first; inputs are multiplied at once, and the loops
    over the steps, forward and backward, have the recurrent product alone.

    Returns:
        The last output (B, units), the outputs (B, L, units), or (B, 1, units), and the state.
    """
    cell = layer.cell
    kernel, recurrent, bias = read_variables((cell.kernel, cell.recurrent_kernel, cell.bias))
    packing = _Packing(tf.shape(sequences)[:2], mask, layer.go_backwards)
    inputs = tf.matmul(tf.gather_nd(sequences, packing.sources), kernel) + bias[0]
    initial = tf.gather(tf.nest.flatten(initial_state)[0], packing.order)
    states = _states(inputs, initial, recurrent, bias[1], packing)
    last = tf.gather(states, packing.outputs[:, -1])
    outputs = tf.gather(states, packing.outputs) if layer.return_sequences else last[:, None]
    return last, outputs, [last]


class _Packing:
    """The T valid positions of a batch, step by step, the longest of B sequences first.

    The states before and after them are in one tensor: the initial ones of B sequences, then those
    after each position.

    Args:
        shape: B and L.
        mask: Valid positions, (B, L); None for all.
        backwards: Whether they are read from the last to the first position.

    Attributes:
        order: The sequences, the longest first, int32 (B,).
        counts: Number of sequences of at least that length, int32 (steps,), for one step or more.
        sources: Sequence and position of each packed one, int32 (T, 2).
        before: Index of the state before it, int32 (T,).
        outputs: Index of the state after every position, int32 (B, L); masked positions keep the
            previous one.
    """

    def __init__(self, shape: Tensor, mask: Tensor | None, backwards: bool) -> None:
        mask = tf.ones(shape, tf.bool) if mask is None else tf.cast(mask, tf.bool)
        if backwards:
            mask = tf.reverse(mask, [1])
        done = tf.cumsum(tf.cast(mask, tf.int32), axis=1)
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self.order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        place = tf.math.invert_permutation(self.order)
        steps = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        longer = lengths[:, None] > tf.range(steps)
        self.counts = tf.reduce_sum(tf.cast(longer, tf.int32), axis=0)
        starts = tf.cumsum(tf.concat([shape[:1], self.counts], axis=0), exclusive=True)
        self.outputs = tf.gather(starts, done) + place[:, None]
        # The packed index of each valid position, and the inverse.
        there = tf.cast(tf.where(mask), tf.int32)
        back = tf.math.invert_permutation(tf.gather_nd(self.outputs, there) - shape[0])
        before = tf.gather(starts, tf.gather_nd(done, there) - 1) + tf.gather(place, there[:, 0])
        self.before = tf.gather(before, back)
        self.sources = tf.gather(there, back)
        if backwards:
            row, column = tf.unstack(self.sources, axis=1)
            self.sources = tf.stack([row, shape[1] - 1 - column], axis=1)


def _states(
    inputs: Tensor, initial: Tensor, recurrent: Tensor, bias: Tensor, packing: _Packing
) -> Tensor:
    """Returns the states (B + T, units): initial ones, and those after each packed position.

    Args:
        inputs: Products (T, 3 units) of the inputs, for the update and reset gates and the new
            state.
        initial: Initial states, (B, units).
        recurrent: The recurrent kernel, (units, 3 units).
        bias: Its bias, (3 units,).
        packing: The positions.
    """

    @tf.custom_gradient
    def run(
        inputs: Tensor, initial: Tensor, recurrent: Tensor, bias: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        states, products = _forward(inputs, initial, recurrent, bias, packing)
        return states, lambda upstream: _backward(
            tf.convert_to_tensor(upstream), states, inputs, products, recurrent, packing
        )

    return run(inputs, initial, recurrent, bias)


def _gates(inputs: Tensor, products: Tensor) -> tuple[Tensor, ...]:
    """Returns the update gate, reset gate, new state, and the factor of the reset gate.

    Args:
        inputs: Products (..., 3 units) of the inputs.
        products: Products of the states before, with the recurrent bias.
    """
    units = products.shape[-1] // 3
    sizes = [2 * units, units]
    to_gates, remembered = tf.split(products, sizes, axis=1)
    of_gates, of_new = tf.split(inputs, sizes, axis=1)
    update, reset = tf.split(tf.sigmoid(of_gates + to_gates), 2, axis=1)
    return update, reset, tf.tanh(of_new + reset * remembered), remembered


def _blocks(dtype: tf.DType, units: int, size: Tensor) -> tf.TensorArray:
    """Returns an array of tensors (any, units), to be concatenated."""
    return tf.TensorArray(dtype, size, element_shape=[None, units], infer_shape=False)


def _split_steps(values: Tensor, counts: Tensor) -> tf.TensorArray:
    """Splits rows (T, F) into blocks of `counts` rows."""
    return _blocks(values.dtype, values.shape[-1], tf.size(counts)).split(values, counts)


def _forward(
    inputs: Tensor, initial: Tensor, recurrent: Tensor, bias: Tensor, packing: _Packing
) -> tuple[Tensor, Tensor]:
    """Makes the states, and products of those before that the gradient would compute again."""
    steps, units = tf.size(packing.counts), initial.shape[-1]
    by_step = _split_steps(inputs, packing.counts)

    def step(
        t: Tensor, state: Tensor, states: tf.TensorArray, products: tf.TensorArray
    ) -> tuple[Any, ...]:
        step_inputs = by_step.read(t)
        state = state[: tf.shape(step_inputs)[0]]
        product = tf.matmul(state, recurrent) + bias
        update, _, new, _ = _gates(step_inputs, product)
        state = new + update * (state - new)
        return t + 1, state, states.write(t + 1, state), products.write(t, product)

    states = _blocks(initial.dtype, units, steps + 1).write(0, initial)
    _, _, states, products = tf.while_loop(
        lambda t, *_: t < steps,
        step,
        (0, initial, states, _blocks(initial.dtype, 3 * units, steps)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, units]), None, None),
    )
    return (
        tf.ensure_shape(states.concat(), [None, units]),
        tf.ensure_shape(products.concat(), [None, 3 * units]),
    )


def _backward(
    upstream: Tensor,
    states: Tensor,
    inputs: Tensor,
    products: Tensor,
    recurrent: Tensor,
    packing: _Packing,
) -> tuple[Tensor, ...]:
    """Returns gradients of inputs, initial state, recurrent kernel and bias.

    A step makes h' = n + z (h - n) and n = tanh(x + r p), where p is the product of h with the
    recurrent kernel of n, and its bias. So h' changes by (h - n) z (1 - z) with the input of the
    update gate z, by (1 - z) (1 - n^2) with x, p r (1 - r) times that with the input of the reset
    gate r, r times that with p, and by z with h itself.
    """
    steps, units = tf.size(packing.counts), states.shape[-1]
    sequences = tf.shape(packing.order)[0]
    upstream = tf.ensure_shape(upstream, [None, units])
    before = tf.gather(states, packing.before)
    update, reset, new, remembered = _gates(inputs, products)
    # Factors from the gradient of a state to the gradient of the products of its step.
    by_new = (1 - update) * (1 - new**2)
    by_product = tf.concat(
        [
            (before - new) * update * (1 - update),
            by_new * remembered * reset * (1 - reset),
            by_new * reset,
        ],
        axis=1,
    )
    by_step = _split_steps(
        tf.concat([upstream[sequences:], update, by_product], axis=1), packing.counts
    )

    def pad_rows(carried: Tensor, like: Tensor) -> Tensor:
        """Appends zeros for sequences that end at this step."""
        return tf.concat([carried, tf.zeros_like(like[tf.shape(carried)[0] :])], axis=0)

    def step(t: Tensor, carried: Tensor, gradients: tf.TensorArray) -> tuple[Any, ...]:
        direct, update, factors = tf.split(by_step.read(t), [units, units, 3 * units], axis=1)
        gradient = direct + pad_rows(carried, direct)
        product = tf.concat(3 * [gradient], axis=1) * factors
        carried = gradient * update + tf.matmul(product, recurrent, transpose_b=True)
        return t - 1, carried, gradients.write(t, gradient)

    _, carried, gradients = tf.while_loop(
        lambda t, *_: t >= 0,
        step,
        (steps - 1, tf.zeros([0, units], states.dtype), _blocks(states.dtype, units, steps)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, units]), None),
    )
    gradient = tf.ensure_shape(gradients.concat(), [None, units])
    product = tf.concat(3 * [gradient], axis=1) * by_product
    inputs_gradient = tf.concat([product[:, : 2 * units], gradient * by_new], axis=1)
    initial_gradient = upstream[:sequences]
    initial_gradient += pad_rows(carried, initial_gradient)
    recurrent_gradient = tf.matmul(before, product, transpose_a=True)
    return inputs_gradient, initial_gradient, recurrent_gradient, tf.reduce_sum(product, axis=0)


def distances(left: Tensor, right: Tensor, least: float) -> Tensor:
    """Returns roots (N, M) of squared distances plus a number, with a shorter gradient."""

    @tf.custom_gradient
    def measure(left: Tensor, right: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
        center = tf.stop_gradient(tf.reduce_mean(left, axis=0, keepdims=True))
        left, right = left - center, right - center
        columns = tf.reduce_sum(tf.square(right), axis=1) + least
        squares = tf.reduce_sum(tf.square(left), axis=1, keepdims=True) + columns
        squares = squares - 2.0 * tf.matmul(left, right, transpose_b=True)
        found = tf.sqrt(tf.maximum(squares, least))

        def backward(upstream: Tensor) -> tuple[Tensor, Tensor]:
            ratio = upstream / found
            rows, columns = (tf.reduce_sum(ratio, axis)[:, None] for axis in (1, 0))
            return (
                rows * left - tf.matmul(ratio, right),
                columns * right - tf.matmul(ratio, left, transpose_a=True),
            )

        return found, backward

    return measure(left, right)


def gather_items(tensor: Tensor) -> Tensor:
    """Concatenates tensors (n, ...) of all replicas; gradients flow back, summed over replicas."""
    # Tensors straight from the data have no device, which several workers need.
    gathered = tf.distribute.get_replica_context().all_gather(tf.identity(tensor), axis=0)
    # The gradient of all_gather takes no slices, as `take` makes; reshape makes them dense.
    gathered = tf.reshape(gathered, tf.shape(gathered))
    return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])


def gather_equal_counts(tensor: Tensor) -> Tensor:
    """Does so where each replica has as many items; one replica returns its tensor."""
    if num_replicas() == 1:
        return tensor
    return tf.ensure_shape(
        gather_items(tensor), [num_replicas() * tensor.shape[0], *tensor.shape[1:]]
    )


def items_before(items: int) -> Tensor:
    """Returns the number of items of the replicas before this one, which have as many each."""
    return items * tf.distribute.get_replica_context().replica_id_in_sync_group
