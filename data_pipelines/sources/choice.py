"""Selection of a source by its `name`, including those of plugins."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, get_args

from data_pipelines.plugins import PluginError, ancestry, base_name, plugin_classes
from data_pipelines.sources.base import Source

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class OneSource:
    """Annotation of a field that holds a source.

    Args:
        *built_in: The built-in sources.
    """

    def __init__(self, *built_in: type[Source]) -> None:
        self._built_in = built_in

    def choices(self) -> dict[str, type[Source]]:
        """Returns every source by name. Those of plugins are imported, without TensorFlow."""
        sources: dict[str, type[Source]] = {}
        for source in (*self._built_in, *self._load_plugins()):
            names = get_args(source.model_fields["name"].annotation)
            if len(names) != 1:
                raise PluginError(
                    f"{source.__module__}.{source.__name__} needs a unique name: "
                    'name: Literal["my_set"] = "my_set"'
                )
            if sources.setdefault(names[0], source) is not source:
                raise PluginError(
                    f"{source.__module__} has a source {names[0]!r}, and so has "
                    f"{sources[names[0]].__module__}; give it another name"
                )
        return sources

    def _load_plugins(self) -> list[type[Source]]:
        bases = {"Source", *(source.__name__ for source in self._built_in)}
        classes, sources = plugin_classes(), []
        for module, names in classes.items():
            for name in names:
                derived = [b for node in ancestry(classes, module, name) for b in node.bases]
                if not name.startswith("_") and bases & {base_name(base) for base in derived}:
                    sources.append(_import(module, name))
        return sources

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        schemas = {name: handler.generate_schema(c) for name, c in self.choices().items()}
        return core_schema.tagged_union_schema(schemas, discriminator="name")


def _import(module: str, name: str) -> type[Source]:
    try:
        source: type[Source] = getattr(importlib.import_module(module), name)
    except Exception as error:  # External code may raise anything.
        raise PluginError(
            f"{module} cannot be imported ({type(error).__name__}: {error}), but has a source"
        ) from error
    return source
