"""The errors of calls from Python that cannot work."""

import os
import sys

from data_pipelines.errors import UserError


class ArgumentError(UserError, ValueError):
    """What a function was given does not fit; the message says what does."""


class BackendError(UserError, ImportError):
    """Keras is set to another backend than TensorFlow."""


def check_backend() -> None:
    """Checks that Keras is not set to another backend than TensorFlow, without importing it.

    Raises:
        BackendError: If it is.
    """
    keras = sys.modules.get("keras")
    chosen = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if keras is not None and hasattr(keras, "config"):
        chosen = keras.config.backend()
    if chosen != "tensorflow":
        raise BackendError(
            f"keras_xmr runs on TensorFlow only, and Keras is set to {chosen!r}; unset "
            "KERAS_BACKEND, or set it to tensorflow"
        ) from None  # Not from the error of Keras, if there is one.
