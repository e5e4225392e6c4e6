"""Classes of Python files, as far as their text tells: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

Classes = Mapping[str, Mapping[str, ast.ClassDef]]
"""The classes of each module, by name."""


def read_classes(files: Mapping[str, Path]) -> Classes:
    """The classes that stand at the top of files.

    Args:
        files: The file of each module, by the name of the module.

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
    """A class and what it derives from, the nearest first: of its module, or of any other.

    Args:
        classes: Where to look, first to last.
        module: The module of the class, which comes before all.
        name: The name of the class.
        heirs: Classes that are not meant, since they derive from it.
    """
    for place in (module, *classes):
        node = classes[place].get(name)
        if node is not None and node not in heirs:
            found = (
                ancestry(classes, place, base_name(base), (*heirs, node)) for base in node.bases
            )
            return [node, *(ancestor for ancestors in found for ancestor in ancestors)]
    return []


def base_name(base: ast.expr) -> str:
    """`Loss` of `Loss` and of `keras_xmr.losses.Loss`."""
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
