"""The state of a call and of seeds within Keras, which Keras keeps private.

A test detects changes in a new version; until it passes there, pyproject.toml excludes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras.src.backend.common import global_state

from keras_xmr.parts.tensors import Tensor


def outer_training() -> bool | None:
    """Returns the `training` of the outer layer whose call this is part of; None without one."""
    call = global_state.get_global_attribute("current_call_ctx")
    training = None if call is None else call.get_value("training")
    return None if training is None else bool(training)


def in_autocast() -> bool:
    """Says whether variables are read in another precision than their own."""
    return global_state.get_global_attribute("autocast_scope") is not None


def in_stateless() -> bool:
    """Says whether a `keras.StatelessScope` collects what is assigned to variables."""
    return global_state.get_global_attribute("stateless_scope") is not None


def default_device() -> str:
    """Returns the device that Keras with PyTorch computes on, such as "cpu"; else nothing."""
    if keras.backend.backend() != "torch":
        return ""
    from keras.src.backend.torch.core import get_device

    return str(get_device())


def is_symbolic(*embeddings: Mapping[str, Any]) -> bool:
    """Says whether a tensor of some dicts of tensors is one of a functional model."""
    return any(isinstance(one, keras.KerasTensor) for side in embeddings for one in side.values())


class GivenSeed(keras.random.SeedGenerator):
    """A seed of Keras that is two given numbers, in place of a state of its own.

    Args:
        numbers: Two whole numbers, or an int tensor (2,).
    """

    def __init__(self, numbers: object) -> None:
        self._numbers = numbers
        self._initial_seed = numbers  # Dropout of PyTorch's backend asks for it.

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the two numbers, uint32 (2,)."""
        return keras.ops.convert_to_tensor(self._numbers, "uint32")
