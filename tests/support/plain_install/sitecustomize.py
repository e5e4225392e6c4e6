"""Hides from Keras and TensorFlow what they import only because a developer has it installed.

A plain installation has neither scikit-learn nor pandas, nor JAX next to TensorFlow. They are half
of the time that an import of TensorFlow takes. Python imports this file where its folder is in
`PYTHONPATH`. Whoever else imports these packages gets them.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from typing import Any

_FIND = importlib.machinery.PathFinder.find_spec
_HIDDEN = {"matplotlib", "pandas", "sklearn"}


def _is_imported_now(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def _find_spec(finder: Any, name: str, path: Any = None, target: Any = None) -> Any:
    is_hidden = name in _HIDDEN or (name == "jax" and os.environ.get("KERAS_BACKEND") != "jax")
    if is_hidden and (_is_imported_now("keras") or _is_imported_now("tensorflow")):
        return None
    return _FIND(name, path, target)


importlib.machinery.PathFinder.find_spec = classmethod(_find_spec)  # type: ignore
