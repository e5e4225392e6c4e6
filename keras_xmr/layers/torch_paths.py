"""What PyTorch needs apart: gradients of its own, and whether values can be read.

Imported where Keras runs on PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import torch

from keras_xmr.parts.keras_state import default_device
from keras_xmr.parts.tensors import Tensor as AnyTensor

Tensor = torch.Tensor


def is_concrete(value: Any) -> bool:
    """Says whether the values of a tensor can be read: in no graph and no transformation."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return not isinstance(value, Tensor) or not value.is_meta


def is_plain(value: Any, rank: int) -> bool:
    """Says whether a value is a dense tensor of some rank, type and device that losses take."""
    return (
        isinstance(value, Tensor)
        and value.ndim == rank
        and value.dtype in _TYPES
        and value.layout == torch.strided
        and not value.is_nested
        and str(value.device) == default_device()
    )


_TYPES = (torch.float32, torch.float64)


def device_of(values: Any) -> AbstractContextManager[Any]:
    """Does what `keras_xmr.layers.backend.device_of` says."""
    if isinstance(values, Mapping):
        values = next(iter(values.values()), None)
    if not isinstance(values, Tensor) or str(values.device) in ("meta", default_device()):
        return nullcontext()
    device: AbstractContextManager[Any] = keras.device(str(values.device))
    return device


def normal(samples: int, like: Any) -> AnyTensor:
    """Draws normal noise (samples, ...) for a tensor by the generator of PyTorch."""
    noise: Any = torch.randn((samples, *like.shape), dtype=like.dtype, device=like.device)
    return noise


@torch.compiler.assume_constant_result
def fixed_normal(shape: tuple[int, ...], seed: tuple[int, int]) -> AnyTensor:
    """Draws normal noise of a known seed, which is a constant in graphs."""
    from keras_xmr.layers.backend import GivenSeed

    noise: AnyTensor = keras.random.normal(shape, seed=GivenSeed(seed))
    return noise


class _WithGradient(torch.autograd.Function):
    """Numbers of vectors, whose gradient was computed with them; see `with_gradient`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Any, values: Tensor, *constants: Tensor) -> tuple[Tensor, Tensor]:
        both = function(values, *constants)
        return both[:, 0], both[:, 1:]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.function = inputs[0]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], *inputs[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        gradient, values, *constants = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A further derivative is wanted, which what was saved does not have.
            gradient = ctx.function(values, *constants)[:, 1:]
        return None, upstream[:, None] * gradient, *(None for _ in constants)


def with_gradient(
    function: Callable[..., AnyTensor], values: AnyTensor, *constants: AnyTensor
) -> AnyTensor:
    """Does what `keras_xmr.layers.backend.with_gradient` says."""
    numbers: AnyTensor = _WithGradient.apply(function, values, *constants)[0]
    return numbers
