"""Classes of Python files, from their syntax trees without importing."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

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
