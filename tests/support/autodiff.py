"""Values and gradients with whichever backend Keras has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np


def gradients(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], variables: Sequence[Any] = ()
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A scalar function of arrays, and its gradients by them and by variables of Keras."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _of_tensorflow(function, inputs, variables)
    return (_of_torch if backend == "torch" else _of_jax)(function, inputs, variables)


def _of_tensorflow(function: Any, inputs: Any, variables: Any) -> Any:
    import tensorflow as tf

    tensors = [tf.constant(array) for array in inputs]
    sources = [*tensors, *(variable.value for variable in variables)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    found = tape.gradient(value, sources, unconnected_gradients="zero")
    return value.numpy(), [tf.convert_to_tensor(one).numpy() for one in found]


def _of_torch(function: Any, inputs: Any, variables: Any) -> Any:
    import torch

    tensors = [torch.tensor(array, requires_grad=True) for array in inputs]
    sources = [*tensors, *(variable.value for variable in variables)]
    value = function(*tensors)
    found = torch.autograd.grad(value, sources, allow_unused=True, materialize_grads=True)
    return value.detach().numpy(), [one.numpy() for one in found]


def _of_jax(function: Any, inputs: Any, variables: Any) -> Any:
    """Compiled, as training is: nothing may depend on the values of a batch."""
    import jax

    def stateless(arrays: Any, values: Any) -> Any:
        scope = keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True)))
        with scope:
            return function(*arrays)

    values = [variable.value for variable in variables]
    value, (by_inputs, by_variables) = jax.jit(jax.value_and_grad(stateless, argnums=(0, 1)))(
        [jax.numpy.asarray(array) for array in inputs], values
    )
    return np.asarray(value), [np.asarray(one) for one in (*by_inputs, *by_variables)]
