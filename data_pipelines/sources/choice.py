"""The choice of a source by its `name`, among ours and those of plugins."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, get_args

from data_pipelines.plugins import PluginError, plugin_classes
from data_pipelines.sources.base import Source
from data_pipelines.syntax import ancestry, base_name

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class OneSource:
    """Marks a field that holds a source.

    Args:
        *own: The sources of ours.
    """

    def __init__(self, *own: type[Source]) -> None:
        self._own = own

    def choices(self) -> dict[str, type[Source]]:
        """Every source by its name. Those of plugins are imported: they need no TensorFlow."""
        found: dict[str, type[Source]] = {}
        for source in (*self._own, *self._of_plugins()):
            names = get_args(source.model_fields["name"].annotation)
            if len(names) != 1:
                raise PluginError(
                    f"{source.__module__}.{source.__name__} needs a name of its own: "
                    'name: Literal["my_set"] = "my_set"'
                )
            if found.setdefault(names[0], source) is not source:
                raise PluginError(
                    f"{source.__module__} has a source {names[0]!r}, and so has "
                    f"{found[names[0]].__module__}; give it another name"
                )
        return found

    def _of_plugins(self) -> list[type[Source]]:
        bases = {"Source", *(source.__name__ for source in self._own)}
        classes, found = plugin_classes(), []
        for module, names in classes.items():
            for name in names:
                derived = [b for node in ancestry(classes, module, name) for b in node.bases]
                if not name.startswith("_") and bases & {base_name(base) for base in derived}:
                    found.append(_import(module, name))
        return found

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        schemas = {name: handler.generate_schema(c) for name, c in self.choices().items()}
        return core_schema.tagged_union_schema(schemas, discriminator="name")


def _import(module: str, name: str) -> type[Source]:
    try:
        found: type[Source] = getattr(importlib.import_module(module), name)
    except Exception as error:  # Whatever the code of others may raise.
        raise PluginError(
            f"{module} cannot be imported ({type(error).__name__}: {error}), but has a source"
        ) from error
    return found
