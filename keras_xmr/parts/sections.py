"""Sections of configs: their base class, and a section that is one of several by its name."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from keras_xmr.utils.messages import cut, nearest


class Section(BaseModel):
    """A section of a config: typed, frozen, no unknown keys; its docstrings are its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class OneChoice(abc.ABC):
    """Annotation of a field that holds one of several config sections, chosen by its `name`.

    They are looked up when a value is validated. A name alone is a section without options.
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
