"""The parts that a config chooses (encoders, heads, matchers, losses and so on), and their options.

A part of a family is a class that the package of the family exports, or that a plugin defines, and
that derives from the base class of the family. Its name in a config is its class name in snake
case. Its options are the keyword-only parameters of its constructor: `options_of` makes one
pydantic model of them, by which a config and calls from Python are checked alike.

A family is imported when a config first chooses one of its parts. This imports TensorFlow, except
for re-rankers and metrics.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from keras_xmr.parts import option_types
from keras_xmr.utils.messages import cut, nearest
from keras_xmr.utils.naming import snake_case
from keras_xmr.utils.plugins import PluginError, plugin_classes

FAMILIES: Mapping[str, tuple[str, str]] = {
    "encoder": ("keras_xmr.encoders", "Encoder"),
    "pooling": ("keras_xmr.heads.pooling", "Pooling"),
    "head": ("keras_xmr.heads", "Head"),
    "matcher": ("keras_xmr.matchers", "Matcher"),
    "loss": ("keras_xmr.losses", "Loss"),
    "optimizer": ("keras_xmr.optimizers", "PartwiseLearningRates"),
    "reranker": ("keras_xmr.reranking", "Reranker"),
    "metric": ("keras_xmr.metrics", "QueryMetric"),
}
"""The package of each family of parts, and the base class of all of them."""

_NUMPY_ALONE = ("reranker", "metric")


_CHECKED: ContextVar[type | None] = ContextVar("_CHECKED", default=None)


def options_are_checked(cls: type) -> bool:
    """Returns whether a section of a config that is building this class has checked its options.

    The first call within the section returns True, and all later ones False: the options of
    another part of this class, which the constructor makes, have not been checked.
    """
    is_checked = _CHECKED.get() is cls
    if is_checked:
        _CHECKED.set(None)
    return is_checked


class Choice(BaseModel):
    """A section of a config that chooses one part of a family and sets its options.

    Attributes:
        part: The class of the part.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    part: ClassVar[Any]

    name: str

    def options(self) -> dict[str, Any]:
        """Returns the keyword arguments of the constructor."""
        return self.model_dump(include=set(options_of(self.part).model_fields) - {"name"})

    @property
    def contract(self) -> Any:
        """The declaration of the part, with its options."""
        return self.part.CONTRACT.with_options(self.options())

    def ineffective(self) -> Iterator[tuple[str, str]]:
        """Yields the names of options that were set and have no effect, with advice."""
        yield from self.part.CONTRACT.ineffective(self.options(), self.defaults())

    def build(self, **arguments: Any) -> Any:
        """Returns the part.

        Args:
            **arguments: Arguments of the constructor that are not options.
        """
        token = _CHECKED.set(self.part)
        try:
            return self.part(**self.options(), **arguments)
        finally:
            _CHECKED.reset(token)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the defaults of the options."""
        return {name: field.default for name, field in cls.model_fields.items()}


class OneChoice(abc.ABC):
    """Annotation of a field that holds one of several config sections, chosen by its `name`.

    Sections are looked up when a value is validated. A name alone is a section without options.
    """

    @abc.abstractmethod
    def choices(self) -> Mapping[str, type[BaseModel]]:
        """Returns every section by name."""

    def why_not_found(self, name: str) -> str:
        """Returns what is wrong with the class of an unknown name; empty if there is none."""
        del name
        return ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._choose)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "object"}

    def _choose(self, value: Any) -> BaseModel:
        choices = self.choices()
        if isinstance(value, BaseModel) and type(value) in choices.values():
            return value
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, dict):
            raise ValueError(f"got {value!r}; write the name of one of {', '.join(choices)}")
        name = fields.get("name")
        if name is None:
            raise ValueError("this section needs a `name`, which selects its component")
        if not isinstance(name, str) or name not in choices:
            why = self.why_not_found(str(name))
            why = why or f"got {cut(repr(name))}, which is not known.{nearest(str(name), choices)}"
            error = PydanticCustomError("value_error", "{error}", {"error": why})
            details = InitErrorDetails(type=error, loc=("name",), input=name)
            raise ValidationError.from_exception_data("choice", [details])
        return choices[name].model_validate(fields)


import_context: Callable[[], AbstractContextManager[Any]] = nullcontext
"""The context in which TensorFlow is imported, which the command line sets."""


def components(family: str) -> dict[str, Any]:
    """Returns the parts of a family by name.

    Args:
        family: A key of `FAMILIES`.

    Raises:
        KeyError: If the family is unknown.
        PluginError: If a part of a plugin has a name that is taken, or an option without a type.
    """
    builtin, base = _builtin(family)
    known = dict(builtin)
    for cls in plugin_classes(base):
        name = snake_case(cls.__name__)
        if (other := known.setdefault(name, cls)) is not cls:
            raise PluginError(
                f"{cls.__module__} has a {family} {name!r}, and so has {other.__module__}; give "
                f"the class {cls.__name__} another name"
            )
        options_of(cls)
    return dict(sorted(known.items()))


@cache
def _builtin(family: str) -> tuple[dict[str, Any], type]:
    """Returns the parts of the project and the base class of a family."""
    package, base_name = FAMILIES[family]
    is_light = family in _NUMPY_ALONE or "tensorflow" in sys.modules
    with nullcontext() if is_light else import_context():
        module = importlib.import_module(package)
    base: type = getattr(module, base_name)
    classes = [one for one in map(vars(module).get, module.__all__) if isinstance(one, type)]
    # Base classes, such as the ones of base.py, are not parts.
    parts = [one for one in classes if issubclass(one, base) and one is not base]
    parts = [one for one in parts if not one.__module__.endswith("base")]
    return {snake_case(cls.__name__): cls for cls in parts}, base


def import_parts() -> None:
    """Imports every part, so that Keras knows it."""
    for family in FAMILIES:
        components(family)


def summaries(names: Iterable[str], *families: str) -> dict[str, str]:
    """Returns one-sentence summaries of parts, by name; unknown names are omitted."""
    known = {name: one for family in families for name, one in components(family).items()}
    return {name: summary_of(known[name]) for name in names if name in known}


def summary_of(cls: type) -> str:
    """Returns the first line of the docstring of a class."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def why_not_found(family: str, name: str) -> str:
    """Returns why a class of a plugin is not a part of a family; empty if it does not exist."""
    package, base = FAMILIES[family]
    for cls in plugin_classes():
        if snake_case(cls.__name__) == name:
            return (
                f"{cls.__module__}.{cls.__name__} does not derive from a {family}; write "
                f"`from {package} import {base}` and class {cls.__name__}({base})"
            )
    return ""


@cache
def options_of(cls: type) -> type[Choice]:
    """Returns the section of a config that chooses a class: its name and its options.

    Raises:
        PluginError: If an option has no type, or the contract names an option that is missing.
    """
    where = f"{cls.__module__}.{cls.__name__}"
    constructor: Any = inspect.unwrap(cls.__init__)  # type: ignore[misc]
    parameters = inspect.signature(constructor).parameters.values()
    options = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    for option in options:
        if option.annotation is option.empty:
            raise PluginError(
                f"{where}({option.name}) has no type; write one of keras_xmr.parts.option_types, "
                f"such as {option.name}: PositiveFloat"
            )
    # Re-rankers and metrics import the types of options for type checkers alone.
    types = get_type_hints(
        SimpleNamespace(__annotations__={one.name: one.annotation for one in options}),
        getattr(constructor, "__globals__", {}),
        vars(option_types),
        include_extras=True,
    )
    documented = _documented_args(cls)
    fields: dict[str, Any] = {"name": (Literal[snake_case(cls.__name__)], ...)} | {
        one.name: (
            types[one.name],
            Field(
                default=... if one.default is one.empty else one.default,
                description=documented.get(one.name),
            ),
        )
        for one in options
    }
    declared = vars(cls).get("DECLARED")
    for name in sorted((declared.named_options() if declared else set()) - set(fields)):
        raise PluginError(
            f"{where}: CONTRACT names the option {name!r}, which its constructor does not take."
            f"{nearest(name, fields)}"
        )
    section = create_model(cls.__name__, __base__=Choice, **fields)
    section.part = cls
    return section


def _documented_args(cls: type) -> dict[str, str]:
    """Returns the descriptions in the `Args:` sections of a class and its base classes, by
    argument.
    """
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        text = inspect.cleandoc(one.__doc__ or "")
        if section := re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.M | re.S):
            entries = re.findall(r"^    (\w+): (.*?)(?=^    [\w*]+: |\Z)", section[1], re.M | re.S)
            found |= {name: " ".join(words.split()) for name, words in entries}
    return found


class OneOf(OneChoice):
    """Marks a field that chooses one part of a family by its `name`.

    Args:
        family: The family, a key of `keras_xmr.parts.registry.FAMILIES`.
        **extra: Further fields of the section, as pydantic field definitions. An option of the
            part takes the place of a field of its name.
    """

    def __init__(self, family: str, **extra: Any) -> None:
        self.family = family
        self.extra = extra
        self._sections: dict[type, type[Choice]] = {}

    def choices(self) -> dict[str, type[Choice]]:
        """Returns the section of each part of the family, by name."""
        return {name: self._section(cls) for name, cls in components(self.family).items()}

    def why_not_found(self, name: str) -> str:
        """Returns what is wrong with the class of an unknown name; empty if there is none."""
        return why_not_found(self.family, name)

    def _section(self, cls: type) -> type[Choice]:
        if cls not in self._sections:
            section = options_of(cls)
            extra = {n: field for n, field in self.extra.items() if n not in section.model_fields}
            self._sections[cls] = create_model(section.__name__, __base__=section, **extra)
        return self._sections[cls]
