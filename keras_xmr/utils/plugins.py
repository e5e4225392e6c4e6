"""Plugins: external packages with sources, losses, matchers and so on, located without importing.

An installed package declares them in its entry points:

    [project.entry-points."keras_xmr.components"]
    my_methods = "my_methods"

Others are named in a config: `plugins: [my_methods]`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from keras_xmr.utils.errors import UserError

Classes = Mapping[str, Mapping[str, ast.ClassDef]]
"""Classes of each module, by name."""


def read_classes(files: Mapping[str, Path]) -> Classes:
    """Reads the top-level classes of files.

    Args:
        files: Files by name of the module.

    Raises:
        SyntaxError: If a file is not Python.
    """
    return {
        module: {
            node.name: node
            for node in ast.parse(path.read_text("utf-8"), str(path)).body
            if isinstance(node, ast.ClassDef)
        }
        for module, path in files.items()
    }


def ancestry(
    classes: Classes, module: str, name: str, heirs: Sequence[ast.ClassDef] = ()
) -> list[ast.ClassDef]:
    """Returns a class and its base classes, the nearest first.

    Args:
        classes: Modules to search, in order.
        module: The module of the class, which is searched first.
        name: The name of the class.
        heirs: Derived classes to exclude.
    """
    for place in (module, *classes):
        node = classes[place].get(name)
        if node is not None and node not in heirs:
            bases = (
                ancestry(classes, place, base_name(base), (*heirs, node)) for base in node.bases
            )
            return [node, *(ancestor for ancestors in bases for ancestor in ancestors)]
    return []


def base_name(base: ast.expr) -> str:
    """Returns `Loss` for `Loss` and for `keras_xmr.losses.Loss`."""
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


GROUP = "keras_xmr.components"
"""Group of entry points; their values are names of modules."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_added: dict[str, Classes] = {}


class PluginError(UserError):
    """A plugin does not exist or cannot be read."""


def add_plugins(names: Iterable[str]) -> list[str]:
    """Registers packages, or modules, as plugins; returns the new ones.

    Args:
        names: Their import names.

    Raises:
        PluginError: If one does not exist or cannot be read.
    """
    new = {name: _read(name) for name in names if name not in {**_added, **_installed()}}
    _added.update(new)
    return list(new)


def added_plugins() -> list[str]:
    """Returns the names of the added plugins."""
    return list(_added)


def remove_plugins(names: Iterable[str]) -> None:
    """Removes added plugins."""
    for name in names:
        _added.pop(name, None)


def plugin_classes() -> Classes:
    """Returns the classes of all plugins, by module."""
    classes: dict[str, Any] = {}
    for plugin in {**_installed(), **_added}.values():
        classes |= plugin
    return classes


def _read(name: str) -> Classes:
    """Reads the classes of a package or module."""
    files = _files_of(name)
    try:
        return read_classes(files)
    except (SyntaxError, UnicodeDecodeError, OSError) as error:
        raise PluginError(f"a plugin cannot be read: {error}") from None


@cache
def _installed() -> dict[str, Classes]:
    """Returns the plugins with entry points. A broken one is omitted with a warning."""
    plugins = {}
    for name in sorted({point.value for point in entry_points(group=GROUP)}):
        try:
            plugins[name] = _read(name)
        except PluginError as error:
            warnings.warn(f"entry point of {GROUP}: {error}", stacklevel=2)
    return plugins


def _files_of(name: str) -> dict[str, Path]:
    if not _NAME.fullmatch(name):
        raise PluginError(f"{name!r} is not the name of a module, such as my_methods")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise PluginError(
            f"module {name!r} does not exist; install its package, or add its folder to PYTHONPATH"
        )
    path = Path(spec.origin)
    if path.name != "__init__.py":
        return {name: path}
    modules = {}
    for file in sorted(path.parent.rglob("*.py")):
        parts = file.relative_to(path.parent).with_suffix("").parts
        modules[".".join([name, *(part for part in parts if part != "__init__")])] = file
    return modules
