"""Operations of PyTorch under the names of Keras, for losses and matchers.

Keras computes products, means and maxima of float64 in float32, and examines all arguments of every
operation, which takes longer than the operation where a batch is small, and much longer where
PyTorch traces it. These pass tensors on; other arguments, and other operations, are left to Keras.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_xmr.parts.keras_state import default_device

Tensor = torch.Tensor
Axis = int | tuple[int, ...] | None
Type = str | torch.dtype

_SMALL = 40.0
"""Where softplus(x) is x to the last digit of float64."""


def __getattr__(name: str) -> Any:
    return getattr(keras.ops, name)


def _unary(name: str) -> Callable[[object], Tensor]:
    function, of_keras = getattr(torch, name), getattr(keras.ops, name)

    def operation(x: object) -> Tensor:
        result: Tensor = function(x) if isinstance(x, Tensor) else of_keras(x)
        return result

    return operation


exp, log, log1p, relu, rsqrt, sigmoid, sqrt, square, tanh, logical_not = map(
    _unary,
    ("exp", "log", "log1p", "relu", "rsqrt", "sigmoid", "sqrt", "square", "tanh", "logical_not"),
)


def softplus(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x, threshold=_SMALL)


def leaky_relu(x: Tensor, negative_slope: float) -> Tensor:
    return torch.nn.functional.leaky_relu(x, negative_slope)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


def logsumexp(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.logsumexp(x, tuple(range(x.ndim)) if axis is None else axis, keepdims)


def logaddexp(x1: Tensor, x2: Tensor) -> Tensor:
    return torch.logaddexp(x1, x2)


def sum(x: object, axis: Axis = None, keepdims: bool = False) -> Tensor:
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        result: Tensor = keras.ops.sum(x, axis, keepdims)
        return result
    return torch.sum(x) if axis is None else torch.sum(x, axis, keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.mean(x) if axis is None else torch.mean(x, axis, keepdims)


def amax(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.amax(x, () if axis is None else axis, keepdims)


def amin(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    return torch.amin(x, () if axis is None else axis, keepdims)


def norm(x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
    return torch.linalg.vector_norm(x, dim=axis, keepdim=keepdims)


def maximum(x1: object, x2: object) -> Tensor:
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        return torch.maximum(x1, x2)
    if isinstance(x1, Tensor) and isinstance(x2, float):
        return x1.clamp_min(x2)
    result: Tensor = keras.ops.maximum(x1, x2)
    return result


def minimum(x1: object, x2: object) -> Tensor:
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        return torch.minimum(x1, x2)
    result: Tensor = keras.ops.minimum(x1, x2)
    return result


def matmul(x1: Tensor, x2: Tensor) -> Tensor:
    """Multiplies tensors of one type, in the precision of autocast, as one of their own type."""
    if x1.dtype != x2.dtype or x1.dtype == torch.float16:
        result: Tensor = keras.ops.matmul(x1, x2)
        return result
    product = torch.matmul(x1, x2)
    return product if product.dtype == x1.dtype else product.to(x1.dtype)


def subtract_product(x: Tensor, x1: Tensor, x2: Tensor, factor: float) -> Tensor:
    """Returns x - factor * x1 x2 in one operation."""
    if not x.dtype == x1.dtype == x2.dtype or torch.is_autocast_enabled(x.device.type):
        return x - factor * matmul(x1, x2)
    return torch.addmm(x, x1, x2, alpha=-factor)


def where(condition: Tensor, x1: Tensor | float, x2: Tensor | float) -> Tensor:
    return torch.where(condition, x1, x2)


def equal(x1: Tensor, x2: Tensor) -> Tensor:
    return torch.eq(x1, x2)


def convert_to_tensor(x: object, dtype: Type | None = None) -> Tensor:
    if dtype is None and isinstance(x, keras.Variable):
        value: Tensor = x.value
        if str(value.device) == default_device():
            return value
    converted: Tensor = keras.ops.convert_to_tensor(x, dtype)
    return converted


def cast(x: object, dtype: Type) -> Tensor:
    x = convert_to_tensor(x) if isinstance(x, keras.Variable) else x
    if not isinstance(x, Tensor):
        result: Tensor = keras.ops.cast(x, dtype)
        return result
    return x.to(dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype))


def shape(x: object) -> tuple[int, ...]:
    return tuple(x.shape) if isinstance(x, Tensor) else keras.ops.shape(x)


def reshape(x: object, newshape: Sequence[int]) -> Tensor:
    if not isinstance(x, Tensor):
        result: Tensor = keras.ops.reshape(x, newshape)
        return result
    return x.reshape(newshape)


def transpose(x: object, axes: Sequence[int] | None = None) -> Tensor:
    if not isinstance(x, Tensor):
        result: Tensor = keras.ops.transpose(x, axes)
        return result
    return x.permute(tuple(reversed(range(x.ndim))) if axes is None else tuple(axes))


def swapaxes(x: Tensor, axis1: int, axis2: int) -> Tensor:
    return x.transpose(axis1, axis2)


def diagonal(x: Tensor) -> Tensor:
    return torch.diagonal(x)


def concatenate(xs: Sequence[object], axis: int = -1) -> Tensor:
    tensors = [x for x in xs if isinstance(x, Tensor)]
    if len(tensors) < len(xs):
        result: Tensor = keras.ops.concatenate(xs, axis)
        return result
    return torch.cat(tensors, axis)


def stack(x: Sequence[Tensor], axis: int = 0) -> Tensor:
    return torch.stack(tuple(x), axis)


def take(x: object, indices: object, axis: int | None = None) -> Tensor:
    """Takes items at indices from 0 on."""
    if not (isinstance(x, Tensor) and isinstance(indices, Tensor) and indices.ndim == 1):
        result: Tensor = keras.ops.take(x, indices, axis)
        return result
    return (x.reshape(-1) if axis is None else x).index_select(axis or 0, indices)


def take_along_axis(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return torch.take_along_dim(x, indices.long(), axis)


def stop_gradient(variable: object) -> Tensor:
    if not isinstance(variable, Tensor):
        result: Tensor = keras.ops.stop_gradient(variable)
        return result
    return variable.detach()


def zeros_like(x: Tensor, dtype: str | None = None) -> Tensor:
    return torch.zeros_like(x, dtype=getattr(torch, dtype) if dtype else None)


def ones_like(x: Tensor, dtype: str | None = None) -> Tensor:
    return torch.ones_like(x, dtype=getattr(torch, dtype) if dtype else None)
