"""Prints every key of a config, or of a part of it, with its meaning.

examples:
  keras-xmr explain
  keras-xmr explain train.phases
  keras-xmr explain model.matcher.match_probability
  keras-xmr explain evaluation.metrics.recall_1
  keras-xmr explain objective.squared_hinge --plugin=my_methods
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from keras_xmr.commands._options import add_list
from keras_xmr.experiments.config.loader import use_plugins
from keras_xmr.experiments.config.mistake_texts import section_name, sections_at, sections_of
from keras_xmr.experiments.config.schema import Config
from keras_xmr.metrics.names import METRICS
from keras_xmr.utils.directions import split_name
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, nearest
from keras_xmr.utils.program import adapt_help

SEVERAL_WORKERS = True

_WIDTH = 96


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("key", nargs="?", default="", help="part, such as train.phases")
    add_list(parser, "--plugin", "NAME", "package with further parts, as in `plugins` of a config")


def run(arguments: argparse.Namespace) -> None:
    """Prints the keys."""
    print(adapt_help(explain(arguments.key, arguments.plugin)))


def explain(key: str = "", plugins: Sequence[str] = ()) -> str:
    """Explains a config, or a part of it.

    Args:
        key: A dotted key such as `train.phases`, with the name of a component where one is
            chosen, such as `model.matcher.match_probability`; empty for everything.
        plugins: Packages whose components can be chosen, too; see `plugins` of a config.

    Raises:
        ConfigError: If the key is unknown.
        PluginError: If a plugin is missing or cannot be read.
    """
    use_plugins(plugins)
    sections: list[type[BaseModel]] = [Config]
    for word in [word for word in key.split(".") if word]:
        fields = {n: f for section in sections for n, f in section.model_fields.items()}
        if inner := sections_at(word, sections):
            sections = inner
        elif key.startswith("evaluation.") and _short(word) in METRICS:
            return "\n".join(_explain_metric(word))
        elif word in fields:
            return "\n".join(_explain_field(word, fields[word], 0))
        else:
            names = [name for section in sections if (name := section_name(section))]
            more = " Components of your packages need --plugin." if names else ""
            raise ConfigError(
                f"explain: unknown key {cut(repr(word))}.{nearest(word, names or fields)}{more}"
            )
    lines = []
    for section in sections:
        if name := section_name(section):
            lines.append(f"name: {name}")
        lines += _explain_section(section, 0 if len(sections) == 1 else 2)
    return "\n".join(lines)


def _short(metric: str) -> str:
    """Returns the name of a metric without its direction."""
    return split_name(metric)[1]


def _explain_metric(name: str) -> list[str]:
    """Explains a metric that every evaluation measures; no config has to choose it."""
    from keras_xmr.experiments.reports.metric_tables import definition

    short = _short(name)
    standard = "A standard metric: every evaluation has it, where the data set has what it needs."
    return [f"{short}: {METRICS[short].unit}", *_wrapped(f"{definition(short)}. {standard}", 4)]


def _explain_section(section: type[BaseModel], indent: int) -> list[str]:
    lines = []
    for name, field in section.model_fields.items():
        if name == "name" and section_name(section):
            continue
        lines += _explain_field(name, field, indent)
        inner = sections_of(field)
        if len(inner) == 1:
            lines += _explain_section(inner[0], indent + 2)
        elif inner:
            names = ", ".join(section_name(choice) or "" for choice in inner)
            lines += _wrapped(f"one of: {names}", indent + 4)
    return lines


def _explain_field(name: str, field: FieldInfo, indent: int) -> list[str]:
    if sections_of(field):
        content = "a list of sections" if get_origin(field.annotation) is tuple else "a section"
    else:
        content = _named(field.annotation)
    head = f"{' ' * indent}{name}: {content}"
    if field.is_required():
        head += ", needed"
    elif field.default is not PydanticUndefined and not isinstance(field.default, BaseModel):
        head += f" = {_plain(field.default)}"
    return [head, *_wrapped(field.description or "", indent + 4)]


def _wrapped(text: str, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, _WIDTH, initial_indent=space, subsequent_indent=space)


def _named(annotation: Any) -> str:
    """Returns a type as written in YAML: `float`, `[int, int]`, `{str: float}` or `int | null`."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _named(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " | ".join(map(_named, inner))
    if origin is tuple:
        return f"[{', '.join('...' if one is ... else _named(one) for one in inner)}]"
    if origin is dict:
        return f"{{{': '.join(map(_named, inner))}}}"
    return "null" if annotation is NoneType else str(annotation.__name__)


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return str(list(value)) if isinstance(value, tuple) else str(value)
