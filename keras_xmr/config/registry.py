"""What encoders, heads, matchers, losses and so on there are, read without importing them.

Every public class of `keras_xmr/losses/*.py` that derives from `Loss` is a loss, and so for the
other families. Its name in a config is its class name in snake case, and its options are the
keyword-only parameters of its constructor, which it may inherit. The registry reads all of this
from the source text, so a config is checked to the last option before TensorFlow has been
imported, and a new method is one new file.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from keras_xmr.config.option_types import ALIASES


@dataclass(frozen=True)
class Family:
    """Components that can stand in for each other.

    Attributes:
        folder: The folder of `keras_xmr` that holds them.
        base: The class in its `base.py` that all of them derive from.
    """

    folder: str
    base: str


FAMILIES: Mapping[str, Family] = {
    "encoder": Family("encoders", "Encoder"),
    "pooling": Family("pooling", "Pooling"),
    "head": Family("heads", "Head"),
    "matcher": Family("matchers", "Matcher"),
    "loss": Family("losses", "Loss"),
    "optimizer": Family("optimizers", "PartwiseLearningRates"),
    "reranker": Family("reranking", "Reranker"),
}
"""The families of components."""


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
    folder, base = FAMILIES[family].folder, FAMILIES[family].base
    classes = _read_folder(Path(__file__).parent.parent / folder)
    found = {}
    for stem in classes.keys() - {"base"}:
        for name in classes[stem]:
            ancestry = _ancestry(classes, stem, name)
            if not name.startswith("_") and base in (node.name for node in ancestry):
                component = _read_class(ancestry, family, f"keras_xmr.{folder}.{stem}")
                found[component.name] = component
    return dict(sorted(found.items()))


_Classes = Mapping[str, Mapping[str, ast.ClassDef]]
"""The classes of each module of a folder, by name."""


def _read_folder(folder: Path) -> _Classes:
    return {
        path.stem: {
            node.name: node
            for node in ast.parse(path.read_text("utf-8"), str(path)).body
            if isinstance(node, ast.ClassDef)
        }
        for path in sorted(folder.glob("*.py"))
    }


def _ancestry(classes: _Classes, stem: str, name: str) -> list[ast.ClassDef]:
    """A class and what it derives from within its folder, the nearest first."""
    for module in (stem, *classes):
        if name in classes[module]:
            node = classes[module][name]
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            return [node, *(a for base in bases for a in _ancestry(classes, module, base))]
    return []


def _read_class(ancestry: Sequence[ast.ClassDef], family: str, module: str) -> Component:
    node = ancestry[0]
    docstring = ast.get_docstring(node) or ""
    return Component(
        family=family,
        name=snake_case(node.name),
        module=module,
        class_name=node.name,
        summary=docstring.partition("\n")[0],
        options=_read_options(ancestry, module),
        constants=dict(ChainMap(*map(_read_constants, ancestry))),
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
        with contextlib.suppress(ValueError):
            if value is not None:
                constants[name] = ast.literal_eval(value)
    return constants


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    functions = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return next((function for function in functions if function.name == "__init__"), None)


def _read_options(ancestry: Sequence[ast.ClassDef], module: str) -> type[Choice]:
    """The options of the nearest constructor."""
    name = ancestry[0].name
    fields: dict[str, Any] = {"name": (Literal[snake_case(name)], ...)}
    node, init = next(((a, init) for a in ancestry if (init := _constructor(a))), (None, None))
    if node is not None and init is not None:
        documented = _documented_args(ast.get_docstring(node) or "")
        for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
            value = ... if default is None else ast.literal_eval(default)
            fields[argument.arg] = (
                _read_type(argument.annotation, f"{module}.{name}({argument.arg})"),
                Field(default=value, description=documented.get(argument.arg)),
            )
    return create_model(name, __base__=Choice, **fields)


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
