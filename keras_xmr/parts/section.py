"""The base class of the sections of configs."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of a config: typed, frozen, no unknown keys; its docstrings are its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
