"""The types that an option of a component may have.

A component (an encoder, a head, a loss, ...) declares its options as annotated keyword-only
parameters of its constructor. The config reads those annotations from the source text, so
only the names below, the built-in types and `Literal` are allowed. The module imports
nothing heavy.
"""

from typing import Annotated, Literal, get_origin

from pydantic import Field

PositiveInt = Annotated[int, Field(gt=0)]
"""A whole number above zero."""

TwoOrMore = Annotated[int, Field(ge=2)]
"""A whole number above one."""

EvenInt = Annotated[int, Field(gt=0, multiple_of=2)]
"""A whole number above zero that is even."""

MultipleOfEight = Annotated[int, Field(gt=0, multiple_of=8)]
"""A whole number above zero that is a multiple of 8."""

NonNegativeInt = Annotated[int, Field(ge=0)]
"""A whole number, zero or more."""

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

Combination = Literal["least", "mean"]
"""Combinations of the scores of several models; see `keras_xmr.audit.candidates`."""

ALIASES: dict[str, object] = {
    **{
        name: kind
        for name, kind in dict(globals()).items()
        if get_origin(kind) in (Annotated, Literal)
    },
    **{kind.__name__: kind for kind in (bool, int, float, str)},
}
"""Types that options may have, by name; tuples of them and `Literal` are allowed, too."""
