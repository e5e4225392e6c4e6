"""What encoders, heads, matchers, losses and so on there are, read without importing them.

Every public class of `keras_xmr/losses/*.py` (`base.py` aside) is a loss, and so for the other
families. Its name in a config is its class name in snake case, and its options are the
keyword-only parameters of its constructor. The catalogue reads all of this from the source
text, so a config is checked to the last option before TensorFlow has been imported, and a new
method is one new file.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from keras_xmr.options import ALIASES

FAMILIES: Mapping[str, str] = {
    "encoder": "encoders",
    "pooling": "pooling",
    "head": "heads",
    "matcher": "matchers",
    "loss": "losses",
    "optimizer": "optimizers",
    "reranker": "reranking",
}
"""The families of components, and the folder of `keras_xmr` that holds each."""


class Choice(BaseModel):
    """A section of a config that chooses one component of a family and sets its options."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )

    name: str

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the component's constructor."""
        return self.model_dump(exclude={"name", "weight"})


@dataclass(frozen=True)
class Component:
    """One class of a family, as far as its source text tells.

    Attributes:
        family: For instance "loss".
        name: Its name in a config, for instance "soft_contrastive".
        module: The module that defines it.
        class_name: Its name in that module.
        summary: The first line of its docstring.
        options: The config section that chooses it: its name and its options.
        constants: Its class attributes with constant values, such as what it needs.
    """

    family: str
    name: str
    module: str
    class_name: str
    summary: str
    options: type[Choice]
    constants: Mapping[str, Any]

    def load(self) -> Any:
        """Imports the class itself. This imports TensorFlow."""
        return getattr(importlib.import_module(self.module), self.class_name)


def snake_case(name: str) -> str:
    """`SoftContrastive` -> `soft_contrastive`, `NTXent` -> `nt_xent`, `AdamP` -> `adamp`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z](?!$))|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def components(family: str) -> Mapping[str, Component]:
    """All components of a family, by name.

    Args:
        family: A key of `FAMILIES`.

    Raises:
        KeyError: If there is no such family.
        TypeError: If a component declares an option that a config cannot hold.
    """
    folder = Path(__file__).parent / FAMILIES[family]
    found: dict[str, Component] = {}
    for path in sorted(folder.glob("*.py")):
        if path.stem in ("__init__", "base"):
            continue
        module = f"{__package__}.{FAMILIES[family]}.{path.stem}"
        for node in ast.parse(path.read_text("utf-8"), str(path)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                component = _read_class(node, family, module)
                found[component.name] = component
    return found


def _read_class(node: ast.ClassDef, family: str, module: str) -> Component:
    docstring = ast.get_docstring(node) or ""
    return Component(
        family=family,
        name=snake_case(node.name),
        module=module,
        class_name=node.name,
        summary=docstring.partition("\n")[0],
        options=_read_options(node, module, docstring),
        constants=_read_constants(node),
    )


def _read_constants(node: ast.ClassDef) -> dict[str, Any]:
    constants = {}
    value: ast.expr | None
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, statement.value
        else:
            continue
        try:
            constants[name] = ast.literal_eval(value) if value is not None else None
        except ValueError:
            continue
    return constants


def _read_options(node: ast.ClassDef, module: str, docstring: str) -> type[Choice]:
    documented = _documented_args(docstring)
    fields: dict[str, Any] = {"name": (Literal[snake_case(node.name)], ...)}
    for init in node.body:
        if isinstance(init, ast.FunctionDef) and init.name == "__init__":
            for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
                where = f"{module}.{node.name}({argument.arg})"
                value = ... if default is None else ast.literal_eval(default)
                description = documented.get(argument.arg)
                fields[argument.arg] = (
                    _read_type(argument.annotation, where),
                    Field(default=value, description=description),
                )
    return create_model(node.name, __base__=Choice, **fields)


def _read_type(node: ast.expr | None, where: str) -> Any:
    """The type that an annotation stands for, without evaluating it."""
    match node:
        case ast.Name(id=name) if name in ALIASES:
            return ALIASES[name]
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_read_type(left, where), _read_type(right, where)]  # noqa: UP007
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return Literal[ast.literal_eval(choices)]
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return list[_read_type(item, where)]  # type: ignore[misc]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            types = [... if _is_ellipsis(item) else _read_type(item, where) for item in items]
            return tuple[tuple(types)]  # type: ignore[misc]
    text = "nothing" if node is None else ast.unparse(node)
    raise TypeError(f"{where}: a config cannot hold the type {text}; use {', '.join(ALIASES)}")


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _documented_args(docstring: str) -> dict[str, str]:
    """What the `Args:` section of a docstring says of each argument."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    if not section:
        return {}
    found = re.findall(r"^    (\w+): (.*?)(?=^    [\w*]+: |\Z)", section[1], re.M | re.S)
    return {name: " ".join(text.split()) for name, text in found}
