"""Loads files of weights, and tensors of PyTorch, into networks, and reports mismatches."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import keras
import numpy as np

_NAMED = 5


class WeightsError(ValueError):
    """A file of weights cannot be loaded; the message names the layers."""


def take_all(network: Any, tensors: dict[str, np.ndarray], places: Mapping[str, str]) -> None:
    """Moves tensors in the layouts of PyTorch into parts of a network.

    Args:
        network: The network, which has been built.
        tensors: Tensors by name; loses the tensors of the parts.
        places: The path of each variable or layer in the network, by its name among the tensors.

    Raises:
        ValueError: If a tensor is missing, or of another size.
    """
    for name, path in places.items():
        layer = network
        for step in path.split("."):
            layer = layer[int(step)] if step.isdecimal() else getattr(layer, step)
        if isinstance(layer, keras.layers.MultiHeadAttention):
            _take_attention(layer, tensors, name)
        else:
            _take(layer, tensors, name)


_ATTENTION = {
    "q_proj": "query_dense",
    "k_proj": "key_dense",
    "v_proj": "value_dense",
    "out_proj": "output_dense",
}


def _take_attention(
    layer: keras.layers.MultiHeadAttention, tensors: dict[str, np.ndarray], name: str
) -> None:
    for ending in ("weight", "bias") if f"{name}.in_proj_weight" in tensors else ():
        thirds = np.split(tensors.pop(f"{name}.in_proj_{ending}"), 3)
        tensors |= {f"{name}.{n}.{ending}": t for n, t in zip(_ATTENTION, thirds, strict=False)}
    for theirs, ours in _ATTENTION.items():
        _take(getattr(layer, ours), tensors, f"{name}.{theirs}")


def _take(layer: Any, tensors: dict[str, np.ndarray], name: str) -> None:
    """Moves the tensors of a variable or a layer."""
    # A matrix without a bias is (in, out) already.
    is_one = isinstance(layer, keras.Variable) or name in tensors
    endings = ("",) if is_one else (".weight", ".bias")
    variables = [layer] if isinstance(layer, keras.Variable) else layer.weights
    for variable, ending in zip(variables, endings, strict=False):
        if name + ending not in tensors:
            raise ValueError(f"it has no tensor {name}{ending}")
        value = tensors.pop(name + ending)
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif variable.name == "kernel" and not is_one:
            value = value.T
        # Attention of Keras has a separate axis for the heads.
        is_split = value.ndim != len(variable.shape)
        variable.assign(value.reshape(variable.shape) if is_split else value)


class _Layer(NamedTuple):
    """A layer with weights: its name, and the shapes of its weights."""

    name: str
    shapes: tuple[tuple[int, ...], ...]


def load_weights(network: keras.Model, path: Path) -> None:
    """Loads all weights of a network from a file.

    Args:
        network: The network.
        path: A file that Keras wrote: `.weights.h5`, `.h5` or `.keras`.

    Raises:
        WeightsError: If the file is missing, or not all weights of the network are in it.
    """
    if not path.is_file():
        raise WeightsError(f"{path} does not exist")
    try:
        if path.suffix == ".keras":
            network.set_weights(keras.saving.load_model(path, compile=False).get_weights())
        else:
            with whole(lambda: differences(network, path)):
                network.load_weights(path)
    except (ValueError, OSError, KeyError, TypeError) as error:
        reason = differences(network, path) or str(error).strip().split("\n")[0]
        raise WeightsError(f"{path} does not fit {network.name}: {reason}") from None


@contextmanager
def whole(missing: Callable[[], str]) -> Iterator[None]:
    """Makes an error of the warning with which Keras passes over layers that a file lacks.

    Keras also warns of containers with layers that were loaded elsewhere.

    Args:
        missing: Returns which layers are missing; empty if none.

    Raises:
        WeightsError: If layers are missing.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    skipped = [str(w.message) for w in caught if "no matching group found" in str(w.message)]
    if skipped and (layers := missing()):
        raise WeightsError(layers)


def differences(network: keras.Model, path: Path) -> str:
    """Returns the layers in which a file of weights differs from a network; empty if unknown."""
    try:
        saved, layers = _saved_and_own(path, network)
    except (ValueError, OSError, KeyError, TypeError):
        return ""
    wrong = [
        f"{layer.name} (its weights are {_shapes(saved[place])} there, {_shapes(layer)} here)"
        for place, layer in layers.items()
        if place in saved and saved[place].shapes != layer.shapes
    ]
    missing = [layer.name for place, layer in layers.items() if place not in saved]
    further = [layer.name for place, layer in saved.items() if place not in layers]
    matching = len(layers) - len(wrong) - len(missing)
    phrases = [f"{matching} of {len(layers)} layers with weights match"]
    if wrong:
        phrases.append(f"of another shape: {_listed(wrong)}")
    if missing:
        phrases.append(f"not in the file: {_listed(missing)}")
    if further:
        phrases.append(f"only in the file: {_listed(further)}")
    return "; ".join(phrases) if wrong or missing else ""


def _saved_and_own(path: Path, network: keras.Model) -> tuple[dict[str, _Layer], dict[str, _Layer]]:
    """Returns the layers of a file and of a network, by their places in such a file."""
    if path.suffix == ".keras":
        saved_model = keras.saving.load_model(path, compile=False)
        return _match_by_order(saved_model), _match_by_order(network)
    with h5py.File(path) as file:
        # In the layout of Keras 2, layers go by their order.
        if "layer_names" in file.attrs or "model_weights" in file:
            return _legacy(file), _match_by_order(network)
        saved = _modern(file)
    with tempfile.TemporaryDirectory() as folder:
        # The network looks for the names that it would write.
        written = Path(folder) / "network.weights.h5"
        network.save_weights(written)
        with h5py.File(written) as file:
            return saved, _modern(file)


def _match_by_order(network: keras.Model) -> dict[str, _Layer]:
    layers = [layer for layer in network.layers if layer.weights]
    return {
        str(number): _Layer(layer.name, tuple(tuple(w.shape) for w in layer.weights))
        for number, layer in enumerate(layers)
    }


def _legacy(file: h5py.File) -> dict[str, _Layer]:
    group = file.get("model_weights", file)
    layers: dict[str, _Layer] = {}
    for encoded in group.attrs["layer_names"]:
        name = encoded.decode() if isinstance(encoded, bytes) else str(encoded)
        weights = group[name].attrs["weight_names"]
        if len(weights):
            shapes = tuple(tuple(group[name][weight].shape) for weight in weights)
            layers[str(len(layers))] = _Layer(name, shapes)
    return layers


def _modern(file: h5py.File) -> dict[str, _Layer]:
    layers: dict[str, _Layer] = {}

    def visit(place: str, group: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(group, h5py.Group) or not place.endswith("vars") or not len(group):
            return
        shapes = tuple(tuple(group[key].shape) for key in sorted(group))
        owner = place.removesuffix("/vars")
        outer = "/".join(owner.split("/")[:2])  # "layers/transformer_encoder_1"
        name = str(group.attrs.get("name", owner))
        if outer != owner and f"{outer}/vars" in file:
            name = f"{file[f'{outer}/vars'].attrs.get('name', outer)}/{name}"
        layers[owner] = _Layer(name, shapes)

    file.visititems(visit)
    return layers


def _shapes(layer: _Layer) -> str:
    return ", ".join(str(list(shape)) for shape in layer.shapes)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
