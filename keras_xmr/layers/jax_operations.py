"""Operations of JAX under the names of Keras, which computes these of float64 in float32."""

from __future__ import annotations

from typing import Any

import jax
import keras
from jax import numpy as jnp


def __getattr__(name: str) -> Any:
    return getattr(keras.ops, name)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> jax.Array:
    return jnp.mean(x, axis, keepdims=keepdims)


def logaddexp(x1: jax.Array, x2: jax.Array) -> jax.Array:
    return jnp.logaddexp(x1, x2)
