"""Chooses the framework of Keras, where nobody has: the one that is imported or installed."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

FRAMEWORKS = ("tensorflow", "torch", "jax")
"""By the order in which Keras and this package prefer them."""

_VARIABLE = "KERAS_BACKEND"


def choose_backend() -> None:
    """Sets `KERAS_BACKEND`, unless it is set, Keras is imported, or its file names another.

    The only framework that is imported already is chosen; otherwise the first one of `FRAMEWORKS`
    that is installed. Keras alone would choose TensorFlow, which may not be installed.
    """
    if os.environ.get(_VARIABLE) or "keras" in sys.modules or _in_file() != "tensorflow":
        return
    imported = [name for name in FRAMEWORKS if sys.modules.get(name) is not None]
    known = imported if len(imported) == 1 else [name for name in FRAMEWORKS if installed(name)]
    if known and known[0] != "tensorflow":
        os.environ[_VARIABLE] = known[0]


def installed(name: str) -> bool:
    """Returns whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # Something is in its place.
        return sys.modules.get(name) is not None


def choose_before_keras() -> None:
    """Calls `choose_backend` when Keras is imported for the first time."""
    if "keras" not in sys.modules and not any(isinstance(f, _Chooser) for f in sys.meta_path):
        sys.meta_path.insert(0, _Chooser())


class _Chooser:
    """Finds no module; it is asked just before Keras is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname == "keras":
            sys.meta_path.remove(self)
            choose_backend()
        return None


def _in_file() -> str:
    """Returns the framework in `~/.keras/keras.json`, which Keras itself writes with its
    default.
    """
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    try:
        return str(json.loads((Path(home) / "keras.json").read_text("utf-8"))["backend"])
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"
