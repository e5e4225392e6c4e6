"""Registers the classes of keras_xmr with Keras, without importing them or Keras.

`keras.models.load_model` finds a class by its registered name alone. Importing the modules of our
classes takes seconds. So a stand-in is registered for every class, which imports it on first use:
at once if Keras is imported already, and otherwise when it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from keras_xmr.utils.errors import UserError

_PACKAGE = Path(__file__).parents[1]
_DECORATED = re.compile(
    r'^@keras\.saving\.register_keras_serializable\(package="keras_xmr"(?:, name="(\w+)")?\)\n'
    r"class (\w+)",
    re.M,
)
_CLASS = re.compile(r"^()class (\w+)\((?!keras\.)", re.M)
_RECORDED = ("heads", "layers", "losses", "matchers", "pooling")
"""Folders of classes that derive from `RecordedLayer`, which registers them."""


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
            f"models, records and commands of keras_xmr run on TensorFlow, and Keras is set to "
            f"{chosen!r}; unset KERAS_BACKEND, or use the losses, matchers, heads and metrics alone"
        )


class StandIn:
    """Proxy of a class that is not imported yet.

    Args:
        module: The module that defines the class. Importing it registers the class itself.
        name: The name of the class.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(import_module(self._module), self._name), attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(self._module), self._name)(*args, **kwargs)


def register() -> None:
    """Registers classes unknown to Keras: now, or when Keras is imported."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "saving"):
        _register_stand_ins(keras)
    else:
        around_import("keras", _then_register)


@contextmanager
def _then_register(keras: ModuleType) -> Iterator[None]:
    yield
    _register_stand_ins(keras)


def _register_stand_ins(keras: ModuleType) -> None:
    known = keras.saving.get_custom_objects()
    for name, module, class_name in registered_classes():
        known.setdefault(f"keras_xmr>{name}", StandIn(module, class_name))


def registered_classes() -> Iterator[tuple[str, str, str]]:
    """The registered name, the module and the name of every such class, from the source text."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
        text, is_recorded = path.read_text("utf-8"), path.parent.name in _RECORDED
        classes = _DECORATED.findall(text) + (_CLASS.findall(text) if is_recorded else [])
        for name, class_name in classes:
            yield name or class_name, module, class_name


Around = Callable[[ModuleType], AbstractContextManager[None]]


def around_import(name: str, around: Around) -> None:
    """Runs the first import of a module within a context, once per module.

    Args:
        name: The module.
        around: Makes the context in which it is executed.
    """
    if not any(isinstance(finder, _Watcher) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher(name, around))


class _Watcher(MetaPathFinder):
    """Lets other finders find the module, and removes itself after the import."""

    def __init__(self, name: str, around: Around) -> None:
        self.name, self._around = name, around

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self._around(module):
                execute(module)
            sys.meta_path.remove(self)

        loader.exec_module = exec_module
