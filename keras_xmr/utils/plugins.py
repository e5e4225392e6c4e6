"""Plugins: packages of others with sources, losses, matchers and so on, which are imported.

An installed package declares them in its entry points:

    [project.entry-points."keras_xmr.components"]
    my_methods = "my_methods"

Others are named in a config: `plugins: [my_methods]`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from keras_xmr.utils.errors import UserError

GROUP = "keras_xmr.components"
"""Group of entry points; their values are names of modules."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_added: dict[str, list[ModuleType]] = {}


class PluginError(UserError):
    """A plugin does not exist, cannot be imported, or has a part that cannot be used."""


def add_plugins(names: Iterable[str]) -> list[str]:
    """Imports packages, with all their modules, or modules as plugins; returns the new ones.

    Raises:
        PluginError: If one does not exist or cannot be imported.
    """
    new = {name: _import(name) for name in names if name not in _added}
    _added.update(new)
    return list(new)


def remove_plugins(names: Iterable[str]) -> None:
    """Removes added plugins."""
    for name in names:
        _added.pop(name, None)


def plugin_modules() -> list[ModuleType]:
    """Returns the modules of all plugins."""
    return [module for modules in {**_installed(), **_added}.values() for module in modules]


def plugin_classes(base: type = object) -> list[type]:
    """Returns the public classes that plugins define and that derive from a base class."""
    return [
        one
        for module in plugin_modules()
        for name, one in vars(module).items()
        if isinstance(one, type)
        and one.__module__ == module.__name__
        and issubclass(one, base)
        and not name.startswith("_")
    ]


@cache
def _installed() -> dict[str, list[ModuleType]]:
    """Imports the plugins with entry points. A broken one is omitted with a warning."""
    plugins = {}
    for name in sorted({point.value for point in entry_points(group=GROUP)}):
        try:
            plugins[name] = _import(name)
        except PluginError as error:
            warnings.warn(f"entry point of {GROUP}: {error}", stacklevel=2)
    return plugins


def _import(name: str) -> list[ModuleType]:
    """Imports a module, and those within a package."""
    if not _NAME.fullmatch(name):
        raise PluginError(f"{name!r} is not the name of a module, such as my_methods")
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        within = pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}.")
        return [module, *(importlib.import_module(inner.name) for inner in within)]
    except Exception as error:  # Code of others may raise anything.
        if isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name)):
            raise PluginError(
                f"module {name!r} does not exist; install its package, or add its folder to "
                "PYTHONPATH"
            ) from None
        prefix = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        raise PluginError(f"{name} cannot be imported: {prefix}{error}") from error
