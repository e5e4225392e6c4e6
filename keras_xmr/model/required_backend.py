"""The backend of Keras that models, records and commands need."""

from __future__ import annotations

import os
import sys

from keras_xmr.utils.errors import UserError


class KerasBackendError(UserError, ImportError):
    """Keras is set to another backend than TensorFlow."""


def check_backend() -> None:
    """Checks that Keras is not set to another backend than TensorFlow, without importing it.

    Raises:
        KerasBackendError: If it is.
    """
    keras = sys.modules.get("keras")
    chosen = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if keras is not None and hasattr(keras, "config"):
        chosen = keras.config.backend()
    if chosen != "tensorflow":
        raise KerasBackendError(
            f"models, records and commands of keras_xmr run on TensorFlow, and Keras is set to "
            f"{chosen!r}; unset KERAS_BACKEND, or use the losses, matchers, heads and metrics alone"
        )
