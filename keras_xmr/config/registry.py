"""The components (encoders, heads, matchers, losses and so on), read without importing them.

Every public class of `keras_xmr/losses/*.py` that derives from `Loss` is a loss, and so for the
other families. Its name in a config is its class name in snake case, and its options are the
keyword-only parameters of its constructor, which it may inherit: those of an `__init__`, or the
fields of a `@dataclass(kw_only=True)`. The registry reads all of this
from the source text, so a config is checked to the last option before TensorFlow has been
imported, and a new method is one new file. The files of plugins are read the same way: there a
class derives from `Loss`, or from a loss of ours, and so on; see `keras_xmr.utils.plugins`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from keras_xmr.config import contracts
from keras_xmr.config.contracts import Contract
from keras_xmr.config.messages import nearest
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.option_types import ALIASES
from keras_xmr.utils.plugins import (
    Classes,
    PluginError,
    ancestry,
    base_name,
    plugin_classes,
    read_classes,
)


class Family(NamedTuple):
    """Interchangeable components.

    Attributes:
        folder: The package in `keras_xmr` that holds them.
        base: The class that all of them derive from.
        contract: The class of their declarations; None if they have none.
    """

    folder: str
    base: str
    contract: type[Contract] | None = None


FAMILIES: Mapping[str, Family] = {
    "encoder": Family("encoders", "Encoder", contracts.EncoderContract),
    "pooling": Family("heads.pooling", "Pooling", contracts.PoolingContract),
    "head": Family("heads", "Head", contracts.HeadContract),
    "matcher": Family("matchers", "Matcher", contracts.MatcherContract),
    "loss": Family("losses", "Loss", contracts.LossContract),
    "optimizer": Family("training.optimizers", "PartwiseLearningRates"),
    "reranker": Family("reranking", "Reranker"),
    "metric": Family("metrics", "QueryMetric"),
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
        return self.model_dump(exclude={"name", *self.extra_keys()})

    @classmethod
    def extra_keys(cls) -> tuple[str, ...]:
        """Keys of the section that are not options of the component."""
        return ()

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The defaults of the options."""
        return {name: field.default for name, field in cls.model_fields.items()}


@dataclass(frozen=True)
class Component:
    """One class of a family, as read from its source text.

    Attributes:
        name: Its name in a config, for instance "soft_contrastive".
        module: The module that defines it.
        class_name: Its name in that module.
        summary: The first line of its docstring.
        options: The config section that chooses it: its name and its options.
        contract: Its declaration; None in a family without declarations.
        search: The declaration `SEARCH` of a matcher, or None.
    """

    name: str
    module: str
    class_name: str
    summary: str
    options: type[Choice]
    contract: Any = None
    search: contracts.SearchContract | None = None

    def load(self) -> Any:
        """Imports the class itself. This imports TensorFlow.

        Raises:
            PluginError: If the module of a plugin cannot be imported.
        """
        try:
            return getattr(importlib.import_module(self.module), self.class_name)
        except Exception as error:
            if isinstance(error, UserError) or self.module not in plugin_classes():
                raise
            raise PluginError(
                f"{self.module} cannot be imported: {type(error).__name__}: {error}"
            ) from error


def summaries(names: Iterable[str], *families: str) -> dict[str, str]:
    """One-sentence summaries of components, by name; unknown names are omitted."""
    known = {name: one for family in families for name, one in components(family).items()}
    return {name: known[name].summary for name in names if name in known}


def build(family: str, choice: Choice, **arguments: Any) -> Any:
    """The component of a family that a section chooses, with its options. Imports TensorFlow.

    Args:
        family: The family, a key of `FAMILIES`.
        choice: The section.
        **arguments: Further arguments of its constructor.
    """
    return components(family)[choice.name].load()(**choice.options(), **arguments)


def contract_of(family: str, choice: Choice) -> Any:
    """The declaration of a component, with the options of a section."""
    return components(family)[choice.name].contract.with_options(choice.options())


def snake_case(name: str) -> str:
    """`SoftContrastive` -> `soft_contrastive`, `NTXent` -> `nt_xent`, `AdamP` -> `adamp`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z](?!$))|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def components(family: str) -> Mapping[str, Component]:
    """All components of a family, by name.

    Args:
        family: A key of `FAMILIES`.

    Raises:
        KeyError: If the family is unknown.
        PluginError: If a component cannot be read, or has a name that is taken.
    """
    plugins = plugin_classes()
    if not plugins:
        return _builtin(family)
    # A plugin must not hide a built-in base class of the same name.
    classes = {**_classes_of_folder(FAMILIES[family][0]), **plugins}
    return _read_components(family, classes, plugins, _builtin(family))


@cache
def _builtin(family: str) -> Mapping[str, Component]:
    """The components of a family that are part of the project."""
    builtin = _classes_of_folder(FAMILIES[family][0])
    # Base classes, such as those of base.py and queries_base.py, are not components.
    modules = [module for module in builtin if not module.endswith("base")]
    return _read_components(family, builtin, modules, {})


def _read_components(
    family: str, classes: Classes, modules: Iterable[str], others: Mapping[str, Component]
) -> Mapping[str, Component]:
    """The components of a family in some modules, which may derive from all classes, and others."""
    _, base, contract = FAMILIES[family]
    known = dict(others)
    for module in modules:
        for name in classes[module]:
            nodes = ancestry(classes, module, name)
            if name.startswith("_") or base not in (node.name for node in nodes[1:]):
                continue
            component = _read_class(nodes, contract, module)
            if (other := known.setdefault(component.name, component)) is not component:
                raise PluginError(
                    f"{module} has a {family} {component.name!r}, and so has {other.module}; give "
                    f"the class {name} another name"
                )
    return dict(sorted(known.items()))


def import_plugins() -> None:
    """Imports every part of a plugin, so that Keras knows it."""
    for family in FAMILIES:
        for component in components(family).values():
            if component.module in plugin_classes():
                component.load()


@cache
def _classes_of_folder(folder: str) -> Classes:
    root = Path(__file__).parent.parent
    paths = sorted(root.joinpath(*folder.split(".")).glob("*.py"))
    try:
        return read_classes({f"{root.name}.{folder}.{path.stem}": path for path in paths})
    except SyntaxError as error:
        raise PluginError(f"a part cannot be read: {error}") from None


def why_not_found(family: str, name: str) -> str:
    """Why a class of a plugin is not a component of a family; empty if it does not exist."""
    folder, base, _ = FAMILIES[family]
    for module, classes in plugin_classes().items():
        for class_name in classes:
            if snake_case(class_name) == name:
                return (
                    f"{module}.{class_name} does not derive from a {family}; write "
                    f"`from keras_xmr.{folder} import {base}` and class {class_name}({base})"
                )
    return ""


def _read_class(
    nodes: Sequence[ast.ClassDef], contract: type[Contract] | None, module: str
) -> Component:
    """A component, of the text of its class and of those that it derives from, nearest first.

    Raises:
        PluginError: If a config cannot hold one of its options, or a declaration is not a literal.
    """
    node = nodes[0]
    docstring = ast.get_docstring(node) or ""
    try:
        for one in nodes:
            _check_constants(one, contract)
        options = _read_options(nodes, module)
        written = _read_contract(nodes[:1], "CONTRACT", contract)
        names = written.named_options() if written else set()
        for name in sorted(names - set(options.model_fields)):
            raise ValueError(
                f"CONTRACT names the option {name!r}, which its constructor does not take."
                f"{nearest(name, options.model_fields)}"
            )
        return Component(
            name=snake_case(node.name),
            module=module,
            class_name=node.name,
            summary=docstring.partition("\n")[0],
            options=options,
            contract=_read_contract(nodes, "CONTRACT", contract),
            search=_read_contract(nodes, "SEARCH", contracts.SearchContract),
        )
    except (TypeError, ValueError) as error:
        raise PluginError(f"{module}.{node.name} cannot be read: {error}") from None


def _assignments(node: ast.ClassDef) -> Iterable[tuple[str, ast.expr]]:
    """The class attributes of a class that have a value."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield from [(statement.target.id, value) for value in [statement.value] if value]


def _check_constants(node: ast.ClassDef, contract: type[Contract] | None) -> None:
    """Checks that upper-case attributes are literals, and not fields of the contract.

    Raises:
        ValueError: If it is not.
    """
    for name, value in _assignments(node):
        if not name.isupper() or name.startswith("_") or name in ("CONTRACT", "SEARCH"):
            continue
        if contract is not None and name.lower() in contract.model_fields:
            raise ValueError(
                f"{name} is declared within CONTRACT = {contract.__name__}({name.lower()}=...)"
            )
        if not _is_literal(value):
            raise ValueError(
                f"{name} is computed, and declarations are read from the source text: write a "
                f"literal, or begin the name with _ if only the class reads it"
            )


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _read_contract(nodes: Sequence[ast.ClassDef], name: str, kind: type[Contract] | None) -> Any:
    """The declaration of a class and of those that it derives from.

    Raises:
        ValueError: If it is not a literal, or has a field that it does not know.
    """
    if kind is None:
        return None
    values = [dict(_assignments(node)).get(name) for node in nodes]
    declared = [_literal_contract(v, name, kind) for v in values if v is not None]
    return contracts.derived_contract(declared)


def _literal_contract(value: ast.expr, name: str, kind: type[Contract]) -> Contract:
    example = f"{name} = {kind.__name__}(...) with literals"
    if not isinstance(value, ast.Call) or base_name(value.func) != kind.__name__ or value.args:
        raise ValueError(f"{name} is not a literal declaration; write {example}")
    fields = {}
    for keyword in value.keywords:
        if keyword.arg is None or not _is_literal(keyword.value):
            raise ValueError(
                f"{name}: {keyword.arg or '**'} is computed, and declarations are read from the "
                f"source text; write {example}"
            )
        fields[keyword.arg] = ast.literal_eval(keyword.value)
    try:
        return kind(**fields)
    except ValidationError as error:
        raise ValueError(f"{name}: {_first_mistake(error, kind)}") from None


def _first_mistake(error: ValidationError, kind: type[BaseModel]) -> str:
    mistake = error.errors(include_url=False)[0]
    field = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return f"{kind.__name__} has no field {field!r}.{nearest(field, kind.model_fields)}"
    return f"{field}: got {mistake['input']!r}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}"


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    functions = (item for item in node.body if isinstance(item, ast.FunctionDef))
    return next((function for function in functions if function.name == "__init__"), None)


def _is_dataclass(node: ast.ClassDef) -> bool:
    decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return "dataclass" in map(base_name, decorators)


def _parameters(
    nodes: Sequence[ast.ClassDef],
) -> Iterator[tuple[ast.ClassDef, str, ast.expr | None, ast.expr | None]]:
    """The options of the nearest constructor: class, name, annotation and default of each."""
    made = next((node for node in nodes if _constructor(node) or _is_dataclass(node)), None)
    if made and (init := _constructor(made)):
        for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
            yield made, argument.arg, argument.annotation, default
    elif made:
        for node in filter(_is_dataclass, nodes):
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    yield node, ast.unparse(item.target), item.annotation, item.value


def _read_options(nodes: Sequence[ast.ClassDef], module: str) -> type[Choice]:
    """The options of the nearest constructor."""
    name = nodes[0].name
    fields: dict[str, Any] = {"name": (Literal[snake_case(name)], ...)}
    for node, option, annotation, default in _parameters(nodes):
        documented = _documented_args(ast.get_docstring(node) or "")
        value = ... if default is None else _read_default(option, default)
        described = Field(default=value, description=documented.get(option))
        kind = _read_type(annotation, f"{module}.{name}({option})")
        fields.setdefault(option, (kind, described))
    return create_model(name, __base__=Choice, **fields)


def _read_default(name: str, node: ast.expr) -> Any:
    if not _is_literal(node):
        raise TypeError(f"the default of {name} is computed: {ast.unparse(node)}; write a literal")
    return ast.literal_eval(node)


def _read_type(node: ast.expr | None, where: str) -> Any:
    """Converts an annotation to a type without evaluating it."""
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
            kind: Any = tuple[tuple(types)]  # type: ignore[misc]
            # None of several is written as null.
            return Annotated[kind, Field(min_length=1)] if ... in types else kind
    known = f"one of {', '.join(ALIASES)}, a Literal, or a tuple of these"
    if node is None:
        raise TypeError(f"{where} has no type; write {known}")
    raise TypeError(f"{where}: a config cannot hold the type {ast.unparse(node)}; use {known}")


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _documented_args(docstring: str) -> dict[str, str]:
    """The descriptions in the `Args:` section of a docstring, by argument."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    if not section:
        return {}
    entries = re.findall(r"^    (\w+): (.*?)(?=^    [\w*]+: |\Z)", section[1], re.M | re.S)
    return {name: " ".join(text.split()) for name, text in entries}
