"""Arrays of NumPy of what other frameworks, or nested sequences, hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_xmr.utils.errors import ArgumentError


def as_array(given: object, name: str) -> np.ndarray:
    """Returns an array of numbers, of nested sequences of them, or of a tensor of any framework.

    Tensors may be on any device and may require a gradient. What is in the memory of the processor
    is not copied, except bfloat16, which NumPy does not have: it becomes float32.

    Args:
        given: The array: anything with `__array__` or `__dlpack__`, or sequences of such.
        name: Name of the array in errors, for instance "scores".

    Raises:
        ArgumentError: If sequences are of different lengths, a value is masked, or a tensor cannot
            be read as an array.
    """
    try:
        if isinstance(given, list | tuple):
            given = [_in_memory(one, name) for one in given]
        array = np.asarray(_in_memory(given, name))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ArgumentError(f"{name}: {error}") from None
    # Such as bfloat16 of TensorFlow and JAX.
    is_foreign = array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32)
    return array.astype(np.float32) if is_foreign else array


def _in_memory(given: Any, name: str) -> Any:
    """Returns what NumPy can read: a tensor of PyTorch is detached and moved, others by DLPack
    if needed.

    No framework is imported.
    """
    if np.ma.is_masked(given):
        raise ArgumentError(
            f"{name} are masked in places, where NumPy would read what is under the mask; fill "
            "them, by -inf where no rank is wanted"
        )
    if callable(getattr(given, "detach", None)):
        given = given.detach().cpu()
        return given.float() if str(given.dtype).endswith("bfloat16") else given
    if isinstance(given, np.ndarray) or not hasattr(given, "__dlpack__"):
        return given
    try:
        return np.asarray(given) if hasattr(given, "__array__") else np.from_dlpack(given)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return np.from_dlpack(given, device="cpu", copy=True)  # From another device.
