"""Tensors of all processes of PyTorch, with gradients. Imported where Keras runs on PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as processes

from keras_xmr.utils.errors import ArgumentError

Tensor = torch.Tensor


def count(group: Any = None) -> int:
    """Returns the number of processes; 1 without a process group."""
    if not (processes.is_available() and processes.is_initialized()):
        return 1
    return int(processes.get_world_size(group))


def gather_items(tensor: Tensor, group: object = None) -> Tensor:
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
    unpadded = [one[: sizes[0]] for one, sizes in zip(gathered, shapes, strict=True)]
    joined: Tensor = torch.cat(unpadded).to(tensor.dtype)
    return joined


def items_before(items: int, like: Tensor, group: Any = None) -> Tensor:
    """Returns the number of items of all processes before this one, int (1,).

    Raises:
        ArgumentError: If another process has announced an error.
    """
    before = torch.zeros_like(like[:1])
    if count(group) == 1:
        return before
    counts = torch.cat(_all(torch.tensor([items], device=_device(group)), group)).tolist()
    if failed := [process for process, items in enumerate(counts) if items == _FAILED]:
        raise ArgumentError(
            f"process {failed[0]} of {len(counts)} had an error in gather: see its own message"
        )
    return before + sum(counts[: processes.get_rank(group)])


_FAILED = -1
"""In place of the number of items of a process with an error."""


def announce_error(group: object = None) -> None:
    """Tells processes that ask for the items before them that this one had an error.

    Processes that are not told would end with an error of the connection, or wait.
    """
    if count(group) > 1:
        _all(torch.tensor([_FAILED], device=_device(group)), group)


def _device(group: Any) -> str:
    """Returns the device whose tensors the processes exchange, whichever they compute on."""
    backends = str(processes.get_backend(group))
    return "cuda" if "nccl" in backends and "gloo" not in backends else "cpu"


def _sent(tensor: Tensor) -> torch.dtype:
    """Returns the type in which numbers are sent: not every backend has booleans."""
    return torch.uint8 if tensor.dtype == torch.bool else tensor.dtype


def _all(tensor: Tensor, group: object) -> list[Tensor]:
    tensors = [torch.empty_like(tensor) for _ in range(count(group))]
    processes.all_gather(tensors, tensor.contiguous(), group=group)
    return tensors


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
