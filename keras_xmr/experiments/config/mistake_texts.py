"""Mistakes of pydantic as lines for the user, and the sections that a key of a config can hold."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.yaml_file import Draft, Key, dotted
from keras_xmr.utils.messages import cut, nearest

_PATH = "a path is a text; put it in quotes"


def follows(error: Mapping[str, Any]) -> bool:
    """Returns whether a mistake only follows from others, which are reported."""
    if error["type"] == "too_short":
        # Entries that are wrong were taken out before they were counted.
        return bool(len(error["input"]) >= error["ctx"]["min_length"])
    return bool(error["type"] == "default_factory_not_called")


def explain(draft: Draft, error: Mapping[str, Any], of: int = 0) -> str:
    """Returns one mistake of pydantic as a line for the user, without `of` parts of the key."""
    key, error_type, context = error["loc"], error["type"], error.get("ctx", {})
    value = error["input"]
    if error_type == "extra_forbidden":
        text = _unknown_key(draft.data, key)
    elif error_type == "missing":
        text = "this key is needed"
    elif error_type == "literal_error":
        names = [n.strip(" '") for n in context["expected"].replace(" or ", ", ").split(",")]
        text = f"got {cut(repr(value))}.{nearest(str(value), names)}"
    elif error_type == "too_short":
        least = context["min_length"]
        text = f"got {cut(repr(value))}: it needs at least {least} item{'s' * (least > 1)}"
    elif error_type == "value_error":
        text = str(context["error"])
    else:
        message = _PATH if error["type"] == "path_type" else error["msg"]
        text = f"got {cut(repr(value))}: {message[:1].lower()}{message[1:]}"
    return ": ".join(filter(None, (draft.place(key), dotted(key[of:]), text)))


def _unknown_key(data: Any, key: Key) -> str:
    """Returns what is wrong with a key that its section does not have."""
    sections: list[type[BaseModel]] = [Config]
    for step in key[:-1]:
        data = data[step]
        if isinstance(step, str):
            sections = sections_at(step, sections)
        if isinstance(data, dict):
            name = data.get("name")
            sections = [one for one in sections if section_name(one) in (None, name)]
    names = sorted({name for section in sections for name in section.model_fields})
    for section in sections:
        cls = getattr(section, "part", None)
        if cls is not None and key[-1] in inspect.signature(cls).parameters:
            return (
                f"the constructor of {cls.__module__}.{cls.__name__} takes it, but not as a "
                f"keyword-only parameter, as options are; write `*, {key[-1]}`"
            )
    return f"unknown key.{nearest(str(key[-1]), names)}"


def sections_at(name: str, sections: Sequence[type[BaseModel]]) -> list[type[BaseModel]]:
    """Selects sections by a name, or all that a key of this name in some sections can hold."""
    fields = [s.model_fields[name] for s in sections if name in s.model_fields]
    named = [section for section in sections if section_name(section) == name]
    return named or [inner for field in fields for inner in sections_of(field)]


def sections_of(annotated: Any) -> list[type[BaseModel]]:
    """Returns all config sections that a field, or a type, can hold."""
    if isinstance(annotated, type) and issubclass(annotated, BaseModel):
        return [annotated]
    if hasattr(annotated, "metadata") and hasattr(annotated, "annotation"):
        inner, marks = annotated.annotation, annotated.metadata
    elif typing.get_origin(annotated) is typing.Annotated:
        inner, marks = typing.get_args(annotated)[0], typing.get_args(annotated)[1:]
    else:
        is_several = typing.get_origin(annotated) in (tuple, typing.Union, types.UnionType, list)
        items = typing.get_args(annotated) if is_several else ()
        return [model for item in items for model in sections_of(item)]
    choosing = next((mark for mark in marks if hasattr(mark, "choices")), None)
    return list(choosing.choices().values()) if choosing else sections_of(inner)


def section_name(model: type[BaseModel]) -> str | None:
    """Returns the `name` by which a section is chosen."""
    field_info = model.model_fields.get("name")
    names = typing.get_args(field_info.annotation) if field_info else ()
    return names[0] if names and isinstance(names[0], str) else None
