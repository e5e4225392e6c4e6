"""Contexts around later imports of modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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
