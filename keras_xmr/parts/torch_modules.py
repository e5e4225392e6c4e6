"""Layers as modules of PyTorch: their parameters from the constructor on, under names of their own.

Keras names parameters after the path of their variable, in which a counter of the process occurs,
and lists parameters of nested layers twice. Here a `state_dict` lists a parameter once, by a name
such as `scale` or `image_attention.local.kernel`, and the shapes that a layer was built for.
"""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import keras
import torch
import torch.distributed as processes
from torch.nn.parallel import DistributedDataParallel

from keras_xmr.utils.errors import ArgumentError

_SHAPES = "_input_shapes"
_Class = TypeVar("_Class")


class _Parameters(torch.nn.ParameterDict):
    """The parameters of a layer by the names of its variables, which Keras has by their paths."""

    def __setitem__(self, path: str, value: torch.nn.Parameter) -> None:
        super().__setitem__(_name(path), value)

    def __getitem__(self, path: str) -> torch.nn.Parameter:
        return super().__getitem__(_name(path))

    def __contains__(self, path: object) -> bool:
        return super().__contains__(_name(str(path)))

    def __delitem__(self, path: str) -> None:
        super().__delitem__(_name(path))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def prepare_module(layer: keras.layers.Layer) -> None:
    """Makes a layer that begins hold its parameters as they come, and name them in its state."""
    layer._torch_params = _Parameters()
    layer.register_state_dict_post_hook(_write_names)
    layer.register_load_state_dict_pre_hook(_read_names)


def restore(
    cls: type[keras.layers.Layer],
    options: dict[str, object],
    state: dict[str, torch.Tensor],
    modes: dict[str, bool],
    kept: dict[str, tuple[bool, torch.device, torch.dtype]],
) -> keras.layers.Layer:
    """Returns a layer of its options, its state, and what modules of PyTorch have besides.

    Args:
        cls: The class.
        options: The arguments of its constructor.
        state: The `state_dict`.
        modes: Whether each module within the layer is in training, by name.
        kept: Whether each parameter has a gradient, its device and its type, by name.
    """
    layer = cls(**options)
    layer.load_state_dict(state)
    for name, module in layer.named_modules():
        module.training = modes[name]
    for name, parameter in _parameters(layer):
        trained, device, dtype = kept[name]
        parameter.data = parameter.data.to(device, dtype)
        parameter.requires_grad_(trained)
    return layer


def reduced(
    layer: keras.layers.Layer,
) -> tuple[Callable[..., keras.layers.Layer], tuple[object, ...]]:
    """Returns how `restore` makes a copy of a layer.

    Keras' own way, and its `get_config`, import TensorFlow where that is installed.
    """
    of_keras = {"name": layer.name, "dtype": layer.dtype_policy.name, "trainable": layer.trainable}
    modes = {name: module.training for name, module in layer.named_modules()}
    kept = {name: (one.requires_grad, one.device, one.dtype) for name, one in _parameters(layer)}
    return restore, (type(layer), of_keras | layer._arguments, layer.state_dict(), modes, kept)


def _parameters(layer: keras.layers.Layer) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yields the parameters of a layer, named without counters of the process."""
    for name, parameter in layer.named_parameters():
        start, _, path = name.partition("_torch_params.")
        yield start + _name(path), parameter


def register_nested(
    layer: keras.layers.Layer,
    name: str,
    value: list[object] | tuple[object, ...] | dict[str, object],
) -> None:
    """Registers the layers within a list or a dict, which PyTorch does not look into."""
    values: Iterable[tuple[object, object]]
    values = value.items() if isinstance(value, dict) else enumerate(value)
    for key, nested in values:
        if isinstance(nested, torch.nn.Module):
            layer.add_module(f"{name}_{key}", nested)


def _has_optimizer() -> bool:
    """Says whether there is an optimizer of PyTorch, which lists none."""
    # It marks the step of a class with the first optimizer: mostly, no object is looked at.
    used = [cls for cls in _subclasses(torch.optim.Optimizer) if hasattr(cls.step, "hooked")]
    return next(_objects(torch.optim.Optimizer, used), None) is not None


def _subclasses(cls: type[_Class]) -> Iterator[type[_Class]]:
    """Yields a class and all that are made of it."""
    yield cls
    for other in cls.__subclasses__():
        yield from _subclasses(other)


def _objects(cls: type[_Class], classes: Sequence[type[_Class]]) -> Iterator[_Class]:
    """Returns the objects of a class that are of these classes."""
    found = gc.get_referrers(*classes) if classes else []
    return (one for one in found if issubclass(type(one), cls))


def warn_of_late_parameters(layer: keras.layers.Layer) -> None:
    """Warns where an optimizer exists before a layer makes its parameters in its first call."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return
    count = len(list(layer.parameters()))
    if not _has_optimizer():
        return
    warnings.warn(
        f"{type(layer).__name__} has made parameters in its first call, {count} tensors, and an "
        "optimizer that was made before lacks them: call it once, or its build, before the "
        "optimizer is made, and before DistributedDataParallel",
        stacklevel=4,
    )


def refuse_late_parameters(layer: keras.layers.Layer) -> None:
    """Checks that a layer that makes parameters is not yet in DistributedDataParallel.

    DistributedDataParallel makes parameters of all processes equal when it is made; parameters that
    are made later would differ for ever.

    Raises:
        ArgumentError: If it is.
    """
    if torch.compiler.is_compiling():
        return
    if not (processes.is_available() and processes.is_initialized()):
        return
    for one in _objects(DistributedDataParallel, list(_subclasses(DistributedDataParallel))):
        if layer in set(one.modules()):
            raise ArgumentError(
                f"{type(layer).__name__} makes parameters in its first call, which would differ "
                "between processes: call it once, or its build, before DistributedDataParallel"
            )


def _named(layer: keras.layers.Layer) -> dict[str, tuple[keras.Variable, str]]:
    """Names the variables of a layer, by path; the name of nested variables is empty."""
    nested = {variable.path: (variable, "") for variable in layer.variables}
    variables = [*layer._trainable_variables, *layer._non_trainable_variables]
    return nested | {variable.path: (variable, variable.name) for variable in variables}


def _key(layer: keras.layers.Layer, path: str, name: str) -> str | None:
    """Returns the name by which a layer holds a variable; None for one of a nested layer."""
    if isinstance(layer.torch_params, _Parameters):
        return name or None
    return path if path in layer.torch_params else None


def _layers(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yields all layers with parameters within a module, and where they begin in a state."""
    for name, layer in module.named_modules():
        if isinstance(layer, keras.layers.Layer) and layer.torch_params:
            yield prefix + (f"{name}." if name else ""), layer


def _as_shapes(read: object) -> object:
    """Returns shapes, which JSON has as lists, as tuples."""
    if isinstance(read, dict):
        return {name: _as_shapes(value) for name, value in read.items()}
    return tuple(read) if isinstance(read, list) else read


def _write_names(
    module: keras.layers.Layer, state: dict[str, torch.Tensor], prefix: str, _: object
) -> None:
    for start, layer in _layers(module, prefix):
        for path, (_, name) in _named(layer).items():
            key = _key(layer, path, name)
            value = state.pop(f"{start}_torch_params.{key}", None) if key else None
            if value is not None and name:
                state[start + name] = value
    if module._build_shapes_dict and module.builds():
        text = json.dumps(module._build_shapes_dict).encode()
        state[prefix + _SHAPES] = torch.frombuffer(bytearray(text), dtype=torch.uint8)


def _read_names(
    module: keras.layers.Layer, state: dict[str, torch.Tensor], prefix: str, *unused: object
) -> None:
    shapes = state.pop(prefix + _SHAPES, None)
    if shapes is not None and not module.built:
        module.rebuild(_as_shapes(json.loads(bytes(shapes.tolist()))))
        module.train(module.training)
    # Paths are not unique: layers that are built in a constructor have no outer one.
    values, named = {}, set()
    for start, layer in _layers(module, prefix):
        for variable, name in _named(layer).values():
            if name:
                named.add(id(variable))
            if name and start + name in state:
                values[id(variable)] = state.pop(start + name)
    for start, layer in _layers(module, prefix):
        for path, (variable, name) in _named(layer).items():
            key = _key(layer, path, name)
            if key and id(variable) in values:
                state[f"{start}_torch_params.{key}"] = values[id(variable)]
            elif key and id(variable) not in named:
                # The state of a generator of random numbers stays.
                state[f"{start}_torch_params.{key}"] = layer.torch_params[path].detach()
