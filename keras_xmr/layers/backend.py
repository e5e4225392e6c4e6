"""Differences of the backends of Keras: tiles in order, seeds, and variables that are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import Any

import keras
import numpy as np

from keras_xmr.layers.operations import ops
from keras_xmr.parts.keras_state import GivenSeed, in_stateless
from keras_xmr.parts.tensors import Seed, Tensor
from keras_xmr.utils.errors import ArgumentError


def backend() -> str:
    """Returns "tensorflow", "torch" or "jax"."""
    return str(keras.backend.backend())


def map_tiles(function: Callable[[Any], list[Tensor]], tiles: object, outputs: int) -> list[Tensor]:
    """Applies a function to one tile after the other, with the memory of one.

    Args:
        function: Makes tensors of a tile, in the precision of its numbers.
        tiles: Tensors (T, ...), in any structure.
        outputs: Number of tensors that it makes.

    Returns:
        The tensors of all tiles, with T as first axis.
    """
    if backend() == "tensorflow":
        from keras_xmr.layers.tensorflow_paths import map_in_order

        return map_in_order(function, tiles, outputs)
    if backend() == "jax":
        return list(ops.map(lambda tile: tuple(function(tile)), tiles))
    count = keras.tree.flatten(tiles)[0].shape[0]
    results = [function(keras.tree.map_structure(lambda t, i=i: t[i], tiles)) for i in range(count)]
    return [ops.stack(result, axis=0) for result in zip(*results, strict=True)]


def read_variables(*variables: Any) -> list[Tensor]:
    """Reads variables as tensors, to which gradients flow once."""
    if backend() == "tensorflow":
        from keras_xmr.layers.tensorflow_paths import read_variables

        return read_variables(variables)
    # PyTorch assigns in place: a state is copied, as what is read has to last until the gradient.
    return [ops.convert_to_tensor(v) if v.trainable else ops.copy(v) for v in variables]


def read_as(variable: keras.Variable, like: Any) -> Tensor:
    """Reads a variable in the type of a tensor."""
    if backend() == "torch":
        value: Any = variable.value
        if value.dtype == like.dtype and value.device == like.device:  # Keras asks for more.
            return value
    return ops.cast(variable, like.dtype)


def is_concrete(value: object) -> bool:
    """Says whether the values of a tensor can be read: not in a graph or a transformation.

    What is no tensor can be read, except by `torch.compile`, which traces arrays of NumPy, too.
    """
    if isinstance(value, keras.KerasTensor):
        return False
    if backend() == "torch":
        from keras_xmr.layers.torch_paths import is_concrete

        return is_concrete(value)
    if not ops.is_tensor(value):
        return True
    if backend() == "tensorflow":
        return hasattr(value, "numpy")
    import jax

    return not isinstance(value, jax.core.Tracer)


def device_of(values: object) -> AbstractContextManager[object]:
    """Computes on the device of a tensor, or of the first of a dict of them.

    Keras with PyTorch would move all tensors to its default device.
    """
    if backend() != "torch":
        return nullcontext()
    from keras_xmr.layers.torch_paths import device_of

    return device_of(values)


def fresh_seed(like: Tensor) -> Seed:
    """Draws a seed of noise that is drawn once.

    Args:
        like: A tensor that the noise is for.

    Returns:
        Two numbers, int (2,); with PyTorch None, for which noise comes from its own generator.

    Raises:
        ArgumentError: Within a transformation of JAX, which would draw the same for ever.
    """
    if backend() == "torch":
        return None
    if backend() == "tensorflow":
        from keras_xmr.layers.tensorflow_paths import fresh_seed

        return fresh_seed()
    if not is_concrete(like):
        raise ArgumentError(
            "noise in training needs a seed within functions that JAX transforms: give seed, such "
            "as jax.random.key_data(key) or the number of the step"
        )
    return tuple(np.random.randint(2**31, size=2).tolist())


def assign_statistics(variable: keras.Variable, value: Tensor) -> None:
    """Assigns a statistic of a batch in training.

    Raises:
        ArgumentError: Within a transformation of JAX, from which nothing can be assigned.
    """
    if backend() == "jax" and not in_stateless() and not is_concrete(value):
        raise ArgumentError(
            f"in training {variable.path} changes, which functions that JAX transforms cannot do: "
            "use keras_xmr.losses.Functional, or training=False"
        )
    variable.assign(value)


def in_inference_mode() -> bool:
    """Says whether PyTorch makes tensors that cannot be used for gradients later."""
    if backend() != "torch":
        return False
    import torch

    return bool(torch.is_inference_mode_enabled())


def is_plain(value: object, rank: int) -> bool:
    """Says whether a loss takes a value as it is, with PyTorch; with others never."""
    if backend() != "torch":
        return False
    from keras_xmr.layers.torch_paths import is_plain

    return is_plain(value, rank)


def subtract_product(values: Tensor, left: Tensor, right: Tensor, factor: float) -> Tensor:
    """Returns values (N, M) minus a factor times the product of matrices (N, D) and (D, M)."""
    if backend() == "torch":
        return ops.subtract_product(values, left, right, factor)
    return values - factor * ops.matmul(left, right)


def is_at_hand(value: Tensor) -> bool:
    """Says whether the values of a tensor are in the memory of the processor."""
    # Reading others would make the processor wait.
    is_away = str(getattr(value, "device", "cpu")).startswith(("cuda", "mps", "xpu"))
    return not is_away and is_concrete(value)


def is_known_not_finite(value: Tensor) -> bool:
    """Says whether a scalar in the memory of the processor is NaN or infinite."""
    if not is_at_hand(value):
        return False
    return not math.isfinite(value.item() if hasattr(value, "item") else float(value))


def with_gradient(function: Callable[..., Tensor], values: Tensor, *constants: Tensor) -> Tensor:
    """Computes numbers of vectors, with a gradient that is computed at the same time.

    Args:
        function: Makes the number of each vector, and its gradient, in one array: (N, 1 + M).
        values: Vectors (N, M).
        *constants: Further arguments of the function, without a gradient.

    Returns:
        The numbers (N,).
    """
    if backend() == "torch":
        from keras_xmr.layers.torch_paths import with_gradient

        return with_gradient(function, values, *constants)

    if backend() == "jax":
        from keras_xmr.layers.jax_operations import with_gradient

        return with_gradient(function, values, *constants)

    @ops.custom_gradient
    def compute(values: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        both = function(values, *constants)
        return both[:, 0], lambda upstream: upstream[:, None] * both[:, 1:]

    return compute(values)


def as_generator(seed: Seed) -> Any:
    """Makes a generator of an int, of two numbers (2,), or of a generator, which it is; or None."""
    if seed is None or isinstance(seed, keras.random.SeedGenerator):
        return seed
    return GivenSeed((seed, 0) if isinstance(seed, int) else seed)


def split_seed(seed: Seed) -> tuple[Seed, Seed]:
    """Derives two seeds of one; a generator gives others each time it is asked, None itself."""
    if seed is None:
        return None, None
    if isinstance(seed, keras.random.SeedGenerator):
        return seed, seed
    if isinstance(seed, Integral):
        return 2 * int(seed), 2 * int(seed) + 1
    # In a graph of JAX a number of a pair is no array of NumPy.
    pair = isinstance(seed, (tuple, list)) and len(seed) == 2
    if not pair and not ops.is_tensor(seed) and np.shape(seed) != (2,):
        raise ArgumentError(f"seed is an int, or a keras.random.SeedGenerator, not {seed!r}")
    if backend() == "tensorflow":
        from keras_xmr.layers.tensorflow_paths import split_seed

        return split_seed(seed)
    numbers = ops.convert_to_tensor(seed, "uint32")
    return numbers * 2, numbers * 2 + 1
