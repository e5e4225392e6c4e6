"""Values and gradients with whichever backend Keras has.

JAX compiles whole functions here, as in training: one operation after another, it would compile
each of them, which takes longer than all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np


def evaluated(function: Callable[..., Any], *inputs: Any, changes: Sequence[Any] = ()) -> Any:
    """A function of trees of arrays, as arrays; `changes` are the variables that it assigns.

    Layers have their weights already: see `built`.
    """
    if keras.backend.backend() == "jax":
        import jax

        def stateless(*inputs: Any) -> Any:
            with keras.StatelessScope():
                return function(*inputs), [variable.value for variable in changes]

        found, values = jax.jit(stateless)(*inputs)
        for variable, value in zip(changes, values, strict=True):
            variable.assign(value)
    else:
        found = function(*keras.tree.map_structure(keras.ops.convert_to_tensor, inputs))
    return keras.tree.map_structure(keras.ops.convert_to_numpy, found)


def built(layer: Any, *inputs: Any) -> Any:
    """A layer with the weights that it has for inputs of these shapes."""
    layer(*keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, str(x.dtype)), inputs))
    return evaluating(layer)


def evaluating(layer: Any) -> Any:
    """A layer in evaluation, as it is in TensorFlow and JAX without an argument."""
    return layer.eval() if hasattr(layer, "eval") else layer


def gradients(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], variables: Sequence[Any] = ()
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A scalar function of arrays, and its gradients by them and by variables of Keras."""
    return differentiated(function, variables)(inputs)


def differentiated(function: Callable[..., Any], variables: Sequence[Any] = ()) -> Any:
    """From inputs to the value and the gradients of `gradients`, compiled once."""
    backend = keras.backend.backend()
    of = {"tensorflow": _of_tensorflow, "torch": _of_torch, "jax": _of_jax}[backend]
    return of(function, variables)


def _of_tensorflow(function: Any, variables: Any) -> Any:
    import tensorflow as tf

    def differentiate(inputs: Any) -> Any:
        tensors = [tf.constant(array) for array in inputs]
        sources = [*tensors, *(variable.value for variable in variables)]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
        found = tape.gradient(value, sources, unconnected_gradients="zero")
        return value.numpy(), [tf.convert_to_tensor(one).numpy() for one in found]

    return differentiate


def _of_torch(function: Any, variables: Any) -> Any:
    import torch

    def differentiate(inputs: Any) -> Any:
        tensors = [torch.tensor(array, requires_grad=True) for array in inputs]
        sources = [*tensors, *(variable.value for variable in variables)]
        value = function(*tensors)
        found = torch.autograd.grad(value, sources, allow_unused=True, materialize_grads=True)
        return value.detach().numpy(), [one.numpy() for one in found]

    return differentiate


def _of_jax(function: Any, variables: Any) -> Any:
    import jax

    def stateless(arrays: Any, values: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*arrays)

    step = jax.jit(jax.value_and_grad(stateless, argnums=(0, 1)))

    def differentiate(inputs: Any) -> Any:
        values = [variable.value for variable in variables]
        value, slopes = step([jax.numpy.asarray(array) for array in inputs], values)
        return np.asarray(value), [np.asarray(one) for both in slopes for one in both]

    return differentiate
