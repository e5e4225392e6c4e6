"""The section `paper` of a config: published figures that ours are compared with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from keras_xmr.metrics import metric_names
from keras_xmr.parts.option_types import PositiveInt
from keras_xmr.parts.section import Section
from keras_xmr.utils.messages import cut, nearest


def _known(values: dict[str, float]) -> dict[str, float]:
    """Checks that figures are of metrics that exist."""
    names = metric_names()
    for name in values:
        if name not in names:
            raise ValueError(f"unknown metric {cut(repr(name))}.{nearest(name, names)}")
    return values


class ReportedFigures(Section):
    """Figures of one table of the report: a split, whole or in folds, of one matcher."""

    row: str | None = None
    """The row of the paper, if it is not the row of the section."""

    split: Literal["train", "val", "test"] = "test"
    """The split."""

    folds: bool = False
    """Whether they are means over folds ("1K test images" of COCO)."""

    matcher: str | None = None
    """The matcher, of `evaluation.matchers`; null is the one that the model trains with."""

    reranker: str | None = None
    """The re-ranker, of `evaluation.rerankers`; null for none."""

    values: Annotated[dict[str, float], Field(min_length=1), AfterValidator(_known)]
    """The figures by the names of our metrics (`i2t_recall_1`), as the paper prints them:
    percent, but for ranks and `relevant_K`, which are counts."""


class ReportedResults(Section):
    """The row of a paper that the config aims at."""

    source: str
    """Paper and table."""

    row: str
    """Name of the row in the table."""

    images: PositiveInt | None = None
    """Images of the test split of the paper, of all its folds together. Tables of a split with
    another number say that they are not comparable. Null where it is not known."""

    figures: tuple[ReportedFigures, ...] = ()
    """The printed figures; the report compares ours with them. Empty where the paper has none."""
