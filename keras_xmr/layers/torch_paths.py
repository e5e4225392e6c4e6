"""What PyTorch needs apart: gradients of its own, and whether values can be read.

Imported where Keras runs on PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import torch

from keras_xmr.layers.torch_operations import softplus
from keras_xmr.parts.keras_state import GivenSeed, default_device
from keras_xmr.parts.tensors import Tensor as AnyTensor

Tensor = torch.Tensor


def is_concrete(value: object) -> bool:
    """Says whether the values of a tensor can be read: in no graph and no transformation."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return not isinstance(value, Tensor) or not value.is_meta


def is_plain(value: object, rank: int) -> bool:
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


def device_of(values: object) -> AbstractContextManager[object]:
    """Does what `keras_xmr.layers.backend.device_of` says."""
    if isinstance(values, Mapping):
        values = next(iter(values.values()), None)
    if not isinstance(values, Tensor) or str(values.device) in ("meta", default_device()):
        return nullcontext()
    device: AbstractContextManager[object] = keras.device(str(values.device))
    return device


def normal(samples: int, like: Any) -> AnyTensor:
    """Draws normal noise (samples, ...) for a tensor by the generator of PyTorch."""
    noise: Any = torch.randn((samples, *like.shape), dtype=like.dtype, device=like.device)
    return noise


@torch.compiler.assume_constant_result
def fixed_normal(shape: tuple[int, ...], seed: tuple[int, int]) -> AnyTensor:
    """Draws normal noise of a known seed, which is a constant in graphs."""
    noise: AnyTensor = keras.random.normal(shape, seed=GivenSeed(seed))
    return noise


class _WithGradient(torch.autograd.Function):
    """Numbers of vectors, whose gradient was computed with them; see `with_gradient`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        function: Callable[..., Tensor], values: Tensor, *constants: Tensor
    ) -> tuple[Tensor, Tensor]:
        both = function(values, *constants)
        return both[:, 0], both[:, 1:]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.function = inputs[0]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], *inputs[1:])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
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


class _Cosines(torch.autograd.Function):
    """Cosines (N, M) of vectors (N, D) and (M, D) as one step of the gradient.

    PyTorch takes longer to run the small steps between than to multiply a batch.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        units = *_unit(left), *_unit(right)
        ctx.save_for_backward(left, right, *units)
        return units[0] @ units[2].T

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right, *units = ctx.saved_tensors
        if torch.is_grad_enabled():  # A further derivative is wanted.
            units = *_unit(left), *_unit(right)
        first, second = ctx.needs_input_grad
        return (
            _slope(upstream @ units[2], *units[:2]) if first else None,
            _slope(upstream.T @ units[0], *units[2:]) if second else None,
        )


_SHORTEST = 1e-12
"""Lengths below count as this."""


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Returns vectors divided by their lengths, and these (N, 1); NaN where one is infinite."""
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min(_SHORTEST)
    # The remainder is the length itself unless it is infinite.
    lengths = lengths.fmod(torch.finfo(vectors.dtype).max)
    return vectors / lengths, lengths


def _slope(upstream: Tensor, units: Tensor, lengths: Tensor) -> Tensor:
    """Returns the gradient by vectors of a gradient by vectors of length 1."""
    along = (upstream * units).sum(1, keepdim=True).masked_fill(lengths <= _SHORTEST, 0.0)
    return torch.addcmul(upstream, units, along, value=-1.0) / lengths


class _Distances(torch.autograd.Function):
    """Roots (N, M) of squared distances plus a number, as one step of the gradient.

    With a scale and a shift, these are shift - scale * root.
    """

    @staticmethod
    def forward(
        ctx: Any,
        left: Tensor,
        right: Tensor,
        least: float,
        scale: Tensor | None,
        shift: Tensor | None,
    ) -> Tensor:
        found, *sides = _distances(left, right, least)
        ctx.least = least
        ctx.save_for_backward(left, right, scale, found, *sides)
        return found if scale is None or shift is None else shift - scale * found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        left, right, scale, found, *sides = ctx.saved_tensors
        if torch.is_grad_enabled():  # A further derivative is wanted.
            found, *sides = _distances(left, right, ctx.least)
        needs = ctx.needs_input_grad
        of_scale = -(upstream * found).sum() if needs[3] else None
        of_shift = upstream.sum() if needs[4] else None
        ratio, (left, right) = upstream / found, sides
        if scale is not None:
            ratio = -scale * ratio
        return (
            _pull(ratio, left, right) if needs[0] else None,
            _pull(ratio.T, right, left) if needs[1] else None,
            None,
            of_scale,
            of_shift,
        )


def _pull(ratio: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Returns the sum over j of ratios (N, M) times the differences of vectors i and j: (N, D)."""
    # In place, as a new matrix costs more than the sum.
    return (ratio.sum(1, keepdim=True) * left).addmm_(ratio, right, alpha=-1.0)


def _distances(left: Tensor, right: Tensor, least: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns roots (N, M), and both sides moved by the mean of the left one."""
    center = left.detach().mean(0)
    left, right = left - center, right - center
    squares = _squares(left)[:, None] + _squares(right)
    squares = squares.addmm_(left, right.T, alpha=-2.0)
    return squares.clamp_min_(0.0).add_(least).sqrt_(), left, right


def _squares(vectors: Tensor) -> Tensor:
    """Returns the squares of the lengths of vectors (N,)."""
    if torch.is_grad_enabled():  # A length of 0 has no second derivative.
        return vectors.square().sum(1)
    return torch.linalg.vector_norm(vectors, dim=1).square_()


class _SoftplusSums(torch.autograd.Function):
    """Sums of softplus(-score) of scores (N, N) on the diagonal, and of softplus(score) off it."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        ctx.weight = weight
        ctx.save_for_backward(scores)
        of_others = softplus(scores).fill_diagonal_(0.0).sum()
        return weight * softplus(-scores.diagonal()).sum(), weight * of_others

    @staticmethod
    def backward(ctx: Any, of_matches: Tensor, of_others: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        slopes = scores.sigmoid() * (ctx.weight * of_others)
        slopes.diagonal().copy_((-scores.diagonal()).sigmoid() * (-ctx.weight * of_matches))
        return slopes, None


def cosines(left: AnyTensor, right: AnyTensor) -> AnyTensor | None:
    """Returns cosines (N, M) of vectors; None in graphs, transformations and mixed precision."""
    return _Cosines.apply(left, right) if _is_eager(left, right) else None


def distances(
    left: AnyTensor,
    right: AnyTensor,
    least: float,
    scale: AnyTensor | None = None,
    shift: AnyTensor | None = None,
) -> AnyTensor | None:
    """Returns roots (N, M) of squared distances plus a number; None where `cosines` is None.

    With a scale and a shift, numbers of the type of the vectors, it is shift - scale * root.
    """
    if not _is_eager(left, right):
        return None
    return _Distances.apply(left, right, least, scale, shift)


def softplus_sums(scores: AnyTensor, weight: float) -> tuple[AnyTensor, AnyTensor] | None:
    """Returns what `SoftContrastive` adds up where pairs of the diagonal match, as one step."""
    return _SoftplusSums.apply(scores, weight) if _is_eager(scores, scores) else None


def _is_eager(left: object, right: object) -> bool:
    return (
        is_concrete(left)
        and isinstance(left, Tensor)
        and isinstance(right, Tensor)
        and left.dtype == right.dtype
        and left.dtype in _TYPES
        and not torch.is_autocast_enabled(left.device.type)
    )
