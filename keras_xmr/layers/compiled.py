"""Compiles what losses and matchers compute, where it would run operation by operation.

Keras examines the arguments of every operation, which takes longer than the operation where a batch
is small. A function that TensorFlow or JAX has compiled does not. PyTorch has operations of its own
(`torch_operations`), and a call within a graph is compiled with the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_xmr.layers.backend import backend
from keras_xmr.parts.keras_state import in_autocast
from keras_xmr.parts.tensors import Tensor

_CALLS_BEFORE = {"tensorflow": 2, "jax": 0}
"""Calls with inputs of the same shapes that run as they are: compiling takes as long as many. JAX
compiles every operation for new shapes, which takes longer than compiling all of them at once."""

_KEPT = 64
"""Functions that a part keeps, of as many shapes; inputs of further shapes run as they are."""


def run(
    function: Callable[..., Tensor], parts: tuple[Any, ...], *inputs: object, **options: object
) -> Tensor:
    """Computes a function, compiled where shapes come again and operations would run one by one.

    Args:
        function: A method of the first part, which draws nothing, assigns nothing, and reads no
            values.
        parts: The losses and matchers that it calls. The first one keeps what is compiled.
        *inputs: Tensors, dicts of them, and numbers.
        **options: Further arguments, which are compiled in.
    """
    if not _is_useful(parts, inputs):
        return function(*inputs, **options)
    kept = parts[0].compiled
    versions = tuple((id(part), part.version) for part in parts)
    key = (versions, tuple(options.items()), _form(inputs))
    if key not in kept and len(kept) == _KEPT:
        return function(*inputs, **options)
    entry = kept.get(key, 0)
    if entry == _CALLS_BEFORE[backend()]:
        entry = _compiled(function, parts, options)
    kept[key] = entry + 1 if isinstance(entry, int) else entry
    if isinstance(entry, int):
        return function(*inputs, **options)
    compiled, variables = entry
    return compiled([variable.value for variable in variables], inputs)


def _is_useful(parts: tuple[Any, ...], inputs: object) -> bool:
    """Says whether operations would run one by one, of parts that are known to compile."""
    if backend() == "torch" or in_autocast():
        return False
    if not all(is_known(part) and part.built for part in parts):
        return False
    if any(isinstance(one, keras.KerasTensor) for one in keras.tree.flatten(inputs)):
        return False
    if backend() == "jax":
        return True
    from keras_xmr.layers.tensorflow_paths import is_eager

    return is_eager()


def is_known(part: object) -> bool:
    """Says whether a part is of this package; others may read values, or draw without Keras."""
    return type(part).__module__.startswith("keras_xmr.")


def _form(inputs: Any) -> Any:
    """Returns the shapes and types of inputs, and inputs that are no tensors themselves."""
    if isinstance(inputs, Mapping):
        return tuple((key, _form(value)) for key, value in inputs.items())
    if isinstance(inputs, tuple):
        return tuple(map(_form, inputs))
    return (inputs.shape, inputs.dtype) if hasattr(inputs, "shape") else inputs


def _compiled(
    function: Callable[..., Tensor], parts: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Callable[..., Tensor], list[Any]]:
    """Returns a function of the values of variables and of inputs, and those variables."""
    variables = [variable for part in parts for variable in part.variables_of_call()]

    def compute(values: list[Tensor], inputs: Any) -> Tensor:
        mapping = zip(variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)):
            return function(*inputs, **options)

    if backend() == "jax":
        import jax

        return jax.jit(compute), variables
    from keras_xmr.layers.tensorflow_paths import compiled

    return compiled(compute), variables
