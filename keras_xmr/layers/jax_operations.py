"""Operations of JAX under the names of Keras, which computes these of float64 in float32.

And the gradient that is computed with a value, for which JAX has a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
from jax import numpy as jnp


def __getattr__(name: str) -> Any:
    return getattr(keras.ops, name)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    return jnp.mean(x, axis, keepdims=keepdims)


def tanh(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


def logaddexp(x1: jax.Array, x2: jax.Array) -> jax.Array:
    return jnp.logaddexp(x1, x2)


def with_gradient(function: Callable[..., Any], values: object, *constants: object) -> Any:
    """Does what `keras_xmr.layers.backend.with_gradient` says.

    Constants are arguments: JAX cannot differentiate a compiled function that has them otherwise.
    """

    @jax.custom_vjp
    def compute(values: object, *constants: object) -> Any:
        return function(values, *constants)[:, 0]

    def forward(values: object, *constants: object) -> tuple[Any, Any]:
        both = function(values, *constants)
        return both[:, 0], both[:, 1:]

    def backward(slopes: Any, upstream: Any) -> Any:
        return upstream[:, None] * slopes, *(None for _ in constants)

    compute.defvjp(forward, backward)
    return compute(values, *constants)
