"""Loads saved models."""

from __future__ import annotations

from pathlib import Path

import keras

from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import user_path


def load_model(path: Path | str) -> Retriever:
    """Loads a model that `model.save`, a run or an export has written, such as `model.keras`.

    `keras.models.load_model` finds the classes of this package only if it was imported after
    Keras; this function needs no order. Code in the file is not run (Keras' safe mode).

    Args:
        path: The file.

    Raises:
        UserError: If the file does not exist, holds another model, or has parts of a package that
            was not imported: the message names it.
    """
    path = user_path(path)
    if not path.is_file():
        raise UserError(f"{path} does not exist; a run has its model in model.keras")
    model = keras.models.load_model(path)
    if not isinstance(model, Retriever):
        raise UserError(
            f"{path} holds a {type(model).__name__}, not a retrieval model; use "
            "keras.models.load_model"
        )
    return model
