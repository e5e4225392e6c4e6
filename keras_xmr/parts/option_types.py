"""Types of options of parts, by which pydantic checks them in configs and in Python.

Any other type that pydantic knows will do as well.
"""

from typing import Annotated, Literal, TypedDict

from pydantic import Field

PositiveInt = Annotated[int, Field(gt=0)]
"""A whole number above zero."""

TwoOrMore = Annotated[int, Field(ge=2)]
"""A whole number above one."""

EvenInt = Annotated[int, Field(gt=0, multiple_of=2)]
"""A whole number above zero that is even."""

MultiplesOfEight = Annotated[
    tuple[Annotated[int, Field(gt=0, multiple_of=8)], ...], Field(min_length=1)
]
"""One or more whole numbers above zero that are multiples of 8."""

NonNegativeInt = Annotated[int, Field(ge=0)]
"""A whole number, zero or more."""

PositiveInts = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
"""One or more whole numbers above zero."""

PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A number above zero."""

NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A number, zero or more."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

BelowOne = Annotated[float, Field(ge=0, lt=1)]
"""A number from 0 on that is below 1."""

Reduction = Literal["mean", "sum"]
"""Reduction of a loss over all pairs of a batch."""

RelevanceMeasure = Literal["cider", "cider_d", "tf_idf"]
"""Measures of the relevance of a caption to an image; see `keras_xmr.relevance.weigh`."""

RelevanceTokenizer = Literal["ptb", "java"]
"""Tokenizers for that."""

Combination = Literal["minimum", "mean"]
"""Combinations of the scores of several models; see `keras_xmr.experiments.audit.candidates`."""


class LayerOptions(TypedDict, total=False):
    """Options of every layer of Keras, which parts and layers of this package pass on to it."""

    name: str | None
    dtype: object
    trainable: bool
    autocast: bool
    activity_regularizer: object
