"""Packages of others that bring sources, losses, matchers and so on; found without importing them.

An installed package says in its entry points that it has some:

    [project.entry-points."keras_xmr.components"]
    my_methods = "my_methods"

One that does not is named in a config: `plugins: [my_methods]`.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.syntax import Classes, read_classes

GROUP = "keras_xmr.components"
"""The group of entry points, whose values are names of modules."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_added: dict[str, dict[str, Path]] = {}


class PluginError(UserError):
    """A plugin cannot be found or read."""


def add_plugins(names: Iterable[str]) -> list[str]:
    """Adds packages, or modules, to those whose parts can be chosen; returns those that are new.

    Args:
        names: Their names, as they would be imported.

    Raises:
        PluginError: If one cannot be found or read.
    """
    new = {name: _files_of(name) for name in names if name not in {**_added, **_installed()}}
    for files in new.values():
        _read(files)
    _added.update(new)
    plugin_classes.cache_clear()
    return list(new)


def added_plugins() -> list[str]:
    """The names of what was added."""
    return list(_added)


def remove_plugins(names: Iterable[str]) -> None:
    """Removes what was added."""
    for name in names:
        _added.pop(name, None)
    plugin_classes.cache_clear()


@cache
def plugin_classes() -> Classes:
    """The classes of all plugins, by module."""
    found: dict[str, Any] = {}
    for files in {**_installed(), **_added}.values():
        found |= _read(files)
    return found


def _read(files: Mapping[str, Path]) -> Classes:
    try:
        return read_classes(files)
    except (SyntaxError, UnicodeDecodeError, OSError) as error:
        raise PluginError(f"a plugin cannot be read: {error}") from None


@cache
def _installed() -> dict[str, dict[str, Path]]:
    """The plugins that say so in their entry points. A broken one is left out with a warning."""
    found = {}
    for name in sorted({point.value for point in entry_points(group=GROUP)}):
        try:
            files = _files_of(name)
            _read(files)
            found[name] = files
        except PluginError as error:
            warnings.warn(f"entry point of {GROUP}: {error}", stacklevel=2)
    return found


def _files_of(name: str) -> dict[str, Path]:
    if not _NAME.fullmatch(name):
        raise PluginError(f"{name!r} is not the name of a module, such as my_methods")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise PluginError(
            f"there is no module {name!r} to import; install its package, or put the folder that "
            "it is in on PYTHONPATH"
        )
    path = Path(spec.origin)
    if path.name != "__init__.py":
        return {name: path}
    modules = {}
    for file in sorted(path.parent.rglob("*.py")):
        parts = file.relative_to(path.parent).with_suffix("").parts
        modules[".".join([name, *(part for part in parts if part != "__init__")])] = file
    return modules
