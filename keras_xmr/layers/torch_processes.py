"""Tensors of all processes of PyTorch, with gradients. Imported where Keras runs on PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as processes

Tensor = torch.Tensor


def count(group: Any = None) -> int:
    """Returns the number of processes; 1 without a process group."""
    if not (processes.is_available() and processes.is_initialized()):
        return 1
    return int(processes.get_world_size(group))


def gather_items(tensor: Tensor, group: Any = None) -> Tensor:
    """Concatenates tensors (n, ...) of all processes; n and the lengths of tokens may differ.

    The gradient of a process' own items is summed over all processes.
    """
    if count(group) == 1:
        return tensor
    shape = torch.tensor(tensor.shape, device=tensor.device)
    shapes = torch.stack(_all(shape, group)).tolist()
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    # Pads from the last axis on; what is added to a mask is false.
    spare = [n for most, n in zip(largest, tensor.shape, strict=True) for n in (most - n, 0)]
    values = torch.nn.functional.pad(tensor.to(_sent(tensor)), spare[::-1])
    gathered = _Gather.apply(values, group)
    parts = [part[: sizes[0]] for part, sizes in zip(gathered, shapes, strict=True)]
    joined: Tensor = torch.cat(parts).to(tensor.dtype)
    return joined


def items_before(items: int, like: Tensor, group: Any = None) -> Tensor:
    """Returns the number of items of all processes before this one, int (1,)."""
    own = like.new_tensor([items])
    if count(group) == 1:
        return torch.zeros_like(own)
    return torch.cat(_all(own, group))[: processes.get_rank(group)].sum()[None]


def _sent(tensor: Tensor) -> torch.dtype:
    """Returns the type in which numbers are sent: not every backend has booleans."""
    return torch.uint8 if tensor.dtype == torch.bool else tensor.dtype


def _all(tensor: Tensor, group: Any) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(count(group))]
    processes.all_gather(parts, tensor.contiguous(), group=group)
    return parts


class _Gather(torch.autograd.Function):
    """The tensors of all processes, stacked."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return torch.stack(_all(tensor, group))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        summed = upstream.contiguous().clone()
        processes.all_reduce(summed, group=ctx.group)
        return summed[processes.get_rank(ctx.group)], None
