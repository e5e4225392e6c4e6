"""Names that Python code imports from the project."""

from __future__ import annotations

import ast
import importlib


def missing_names(code: str) -> list[str]:
    """The names that code imports from the project, also in functions, and that do not exist."""
    missing = []
    for node in ast.walk(ast.parse(code)):
        module = (isinstance(node, ast.ImportFrom) and node.module) or ""
        if module.startswith(("keras_xmr", "data_pipelines")):
            imported = importlib.import_module(module)
            missing += [f"{module}.{a.name}" for a in node.names if not hasattr(imported, a.name)]
    return missing
