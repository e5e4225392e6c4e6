"""Gradient caching: large batches in the memory of small ones (Gao et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import ArgumentError


class Chunks:
    """One side of a batch, which a tower embeds in chunks, twice.

    The first pass keeps only the embeddings of a chunk; the second pass computes the gradient by
    the weights from that by the embeddings. Random generators begin both passes alike, so dropout
    draws the same numbers, and the gradient equals a single pass which keeps everything.

    Args:
        tower: A tower that embeds each item independently of the others.
        inputs: The inputs, of B items.
        size: Items in a chunk; the last one may have less.
    """

    def __init__(self, tower: keras.Model, inputs: Tensor, size: int) -> None:
        self.tower = tower
        self._inputs = tf.convert_to_tensor(inputs)
        self._size = size
        self._count = -(-tf.shape(self._inputs)[0] // size)
        weights = {id(weight) for weight in tower.weights}
        # Variables that are not weights are states of random generators.
        self._states = [state for state in tower.variables if id(state) not in weights]

    def embed(self) -> Embedding:
        """Embeddings of all B items, without a gradient by the weights."""
        self._begins = [tf.identity(state.value) for state in self._states]
        outputs = tf.nest.flatten(self.tower.output)
        made = [
            tf.TensorArray(
                out.dtype, self._count, element_shape=(None, *out.shape[1:]), infer_shape=False
            )
            for out in outputs
        ]

        def body(number: Tensor, made: Any) -> Any:
            embedded = self._embed_chunk(number)
            return number + 1, [a.write(number, x) for a, x in zip(made, embedded, strict=True)]

        embeddings = [
            tf.ensure_shape(array.concat(), (None, *out.shape[1:]))
            for array, out in zip(self._each(made, body), outputs, strict=True)
        ]
        return tf.nest.pack_sequence_as(self.tower.output, embeddings)

    def gradients(self, upstream: Embedding) -> list[Tensor]:
        """Gradients by the trainable variables of the tower; `embed` comes first.

        Args:
            upstream: Gradients by the embeddings of all items; None where it is missing.
        """
        variables = self.tower.trainable_variables
        slopes = tf.nest.flatten(upstream)
        read = [number for number, slope in enumerate(slopes) if slope is not None]

        for state, begin in zip(self._states, self._begins, strict=True):
            state.assign(begin)

        def body(number: Tensor, sums: list[Tensor]) -> Any:
            with tf.GradientTape() as tape:
                embedded = self._embed_chunk(number)
            targets = [embedded[position] for position in read]
            slope_chunks = [self._chunk(slopes[position], number) for position in read]
            added = tape.gradient(targets, variables, output_gradients=slope_chunks)
            added = dense(added, variables)
            return number + 1, [total + one for total, one in zip(sums, added, strict=True)]

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        return self._each(zeros, body)

    def _each(self, begin: list[Any], body: Callable[..., Any]) -> list[Any]:
        """Runs a loop body on all chunks, one after another, and returns its last results."""
        _, results = tf.while_loop(
            lambda number, _: number < self._count,
            body,
            (tf.constant(0), begin),
            # Chunks that are worked off together would be in memory together.
            parallel_iterations=1,
        )
        return list(results)

    def _embed_chunk(self, number: Tensor) -> list[Tensor]:
        chunk = self._chunk(self._inputs, number)
        return list(tf.nest.flatten(self.tower(chunk, training=True)))

    def _chunk(self, tensor: Tensor, number: Tensor) -> Tensor:
        return tensor[number * self._size : (number + 1) * self._size]


def dense(gradients: Sequence[Tensor | None], variables: Sequence[keras.Variable]) -> list[Tensor]:
    """Gradients as dense tensors, zeros for variables without one."""
    return [
        tf.zeros(variable.shape, variable.dtype)
        if gradient is None
        else tf.convert_to_tensor(gradient)
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def check_towers(towers: dict[str, keras.Model]) -> None:
    """Checks that towers embed each item independently of the rest of the chunk.

    Args:
        towers: The towers, by side.

    Raises:
        ArgumentError: If one normalises by the statistics of a batch.
    """
    for side, tower in towers.items():
        for layer in all_layers(tower):
            if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
                raise ArgumentError(
                    f"gradient caching embeds a batch in chunks, but {layer.name!r} in the {side} "
                    "tower is batch normalisation, which would see one chunk in place of the "
                    "batch. Leave train.gradient_caching out, freeze the encoder, or take one "
                    "without batch normalisation"
                )
