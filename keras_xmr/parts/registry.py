"""The parts that a config chooses (encoders, heads, matchers, losses and so on), and their options.

A part of a family is a class that the package of the family exports, or that a plugin defines, and
that derives from the base class of the family. Its name in a config is its class name in snake
case. Its options are the keyword-only parameters of its constructor: `options_of` makes one
pydantic model of them, by which a config and calls from Python are checked alike.

A family is imported when a config first chooses one of its parts. This imports TensorFlow, except
for re-rankers and metrics.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from keras_xmr.parts import option_types
from keras_xmr.utils.messages import nearest
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

    def build(self, **arguments: Any) -> Any:
        """Returns the part.

        Args:
            **arguments: Arguments of the constructor that are not options.
        """
        return self.part(**self.options(), **arguments)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the defaults of the options."""
        return {name: field.default for name, field in cls.model_fields.items()}


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
    """The parts of the project and the base class of a family."""
    package, base_name = FAMILIES[family]
    is_light = family in _NUMPY_ALONE or "tensorflow" in sys.modules
    with nullcontext() if is_light else import_context():
        module = importlib.import_module(package)
    base: type = getattr(module, base_name)
    classes = [one for one in map(vars(module).get, module.__all__) if isinstance(one, type)]
    # Base classes, such as those of base.py, are not parts.
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
    """The descriptions in the `Args:` sections of a class and its base classes, by argument."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        text = inspect.cleandoc(one.__doc__ or "")
        if section := re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.M | re.S):
            entries = re.findall(r"^    (\w+): (.*?)(?=^    [\w*]+: |\Z)", section[1], re.M | re.S)
            found |= {name: " ".join(words.split()) for name, words in entries}
    return found
