"""Makes a SavedModel of an earlier one of the same functions, by replacing its variables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def write_with_variables(earlier: Path, path: Path, variables: Sequence[Any]) -> bool:
    """Writes a SavedModel with other values of its variables.

    Args:
        earlier: The earlier SavedModel, whose attribute `read` has its variables.
        path: The new folder.
        variables: Variables of Keras in the same order.

    Returns:
        Whether it could be written: False where the earlier one is missing or damaged, or its
        variables are others, by number, shape or dtype.
    """
    try:
        reader = tf.train.load_checkpoint(str(earlier / "variables" / "variables"))
    except (tf.errors.OpError, ValueError):
        return False
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    graph = shapes.pop(_GRAPH, None)
    values = dict(_values(variables))
    if graph is None or shapes.keys() != values.keys():
        return False
    for name, value in values.items():
        if (tuple(shapes[name]), dtypes[name]) != (value.shape, tf.as_dtype(value.dtype)):
            return False
    values[_GRAPH] = np.array(reader.get_tensor(_GRAPH), object)
    shutil.copytree(earlier, path, ignore=shutil.ignore_patterns("variables"))
    (path / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(path / "variables" / "variables"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=[tf.constant(value) for value in values.values()],
    )
    return True


def _values(variables: Sequence[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields names in a SavedModel and values of variables, one that comes again once."""
    seen = set()
    for number, variable in enumerate(variables):
        if id(variable) not in seen:
            seen.add(id(variable))
            yield f"read/{number}/.ATTRIBUTES/VARIABLE_VALUE", np.asarray(variable)
