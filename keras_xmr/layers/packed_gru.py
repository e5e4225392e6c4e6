"""Forward and backward of a GRU in TensorFlow without the padding of short sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from keras_xmr.layers.tensorflow_paths import read_variables
from keras_xmr.parts.tensors import Tensor


def can_pack() -> bool:
    """Says whether a packed GRU is faster: on a CPU, and not within XLA, which lacks its slices."""
    in_xla = not tf.executing_eagerly() and GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    )
    return not in_xla and not tf.config.list_logical_devices("GPU")


def run_packed_gru(
    layer: keras.layers.GRU, sequences: Tensor, initial_state: object, mask: Tensor | None
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
        has_step = lengths[:, None] > tf.range(steps)
        self.counts = tf.reduce_sum(tf.cast(has_step, tf.int32), axis=0)
        starts = tf.cumsum(tf.concat([shape[:1], self.counts], axis=0), exclusive=True)
        self.outputs = tf.gather(starts, done) + place[:, None]
        # Valid positions in the order of the batch, and their indices in the order of the steps.
        positions = tf.cast(tf.where(mask), tf.int32)
        packed = tf.gather_nd(self.outputs, positions) - shape[0]
        by_step = tf.math.invert_permutation(packed)
        sequence = tf.gather(place, positions[:, 0])
        before = tf.gather(starts, tf.gather_nd(done, positions) - 1) + sequence
        self.before = tf.gather(before, by_step)
        self.sources = tf.gather(positions, by_step)
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
        bias: The bias, (3 units,).
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
    """Returns the update gate, reset gate, new state, and the products that the reset gate scales.

    Args:
        inputs: Products (..., 3 units) of the inputs.
        products: Products of the states before, with the recurrent bias.
    """
    units = products.shape[-1] // 3
    gate_inputs, new_inputs = tf.split(inputs, [2 * units, units], axis=1)
    gate_products, new_products = tf.split(products, [2 * units, units], axis=1)
    update, reset = tf.split(tf.sigmoid(gate_inputs + gate_products), 2, axis=1)
    return update, reset, tf.tanh(new_inputs + reset * new_products), new_products


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
    update, reset, new, new_products = _gates(inputs, products)
    # Factors from the gradient of a state to the gradient of the products of its step.
    by_new = (1 - update) * (1 - new**2)
    by_product = tf.concat(
        [
            (before - new) * update * (1 - update),
            by_new * new_products * reset * (1 - reset),
            by_new * reset,
        ],
        axis=1,
    )
    by_step = _split_steps(
        tf.concat([upstream[sequences:], update, by_product], axis=1), packing.counts
    )

    def pad_rows(later: Tensor, like: Tensor) -> Tensor:
        """Appends zeros for sequences that end at this step."""
        return tf.concat([later, tf.zeros_like(like[tf.shape(later)[0] :])], axis=0)

    def step(t: Tensor, later: Tensor, gradients: tf.TensorArray) -> tuple[Any, ...]:
        """Writes the gradient of this state, and passes on the gradient of the state before."""
        direct, update, factors = tf.split(by_step.read(t), [units, units, 3 * units], axis=1)
        gradient = direct + pad_rows(later, direct)
        product = tf.concat(3 * [gradient], axis=1) * factors
        later = gradient * update + tf.matmul(product, recurrent, transpose_b=True)
        return t - 1, later, gradients.write(t, gradient)

    _, later, gradients = tf.while_loop(
        lambda t, *_: t >= 0,
        step,
        (steps - 1, tf.zeros([0, units], states.dtype), _blocks(states.dtype, units, steps)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, units]), None),
    )
    gradient = tf.ensure_shape(gradients.concat(), [None, units])
    product = tf.concat(3 * [gradient], axis=1) * by_product
    inputs_gradient = tf.concat([product[:, : 2 * units], gradient * by_new], axis=1)
    initial_gradient = upstream[:sequences]
    initial_gradient += pad_rows(later, initial_gradient)
    recurrent_gradient = tf.matmul(before, product, transpose_a=True)
    return inputs_gradient, initial_gradient, recurrent_gradient, tf.reduce_sum(product, axis=0)
