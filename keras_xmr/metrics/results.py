"""The long table of results: one row per figure, in a CSV file that other programs open."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from keras_xmr.metrics.names import METRICS, RSUM, Metric
from keras_xmr.utils.directions import full_name, split_name
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.spreadsheets import to_csv, without_apostrophe

if TYPE_CHECKING:
    import pandas

MODEL = "model"
"""The method of the rows of the evaluated model itself."""

CHANCE = "chance"
"""The method of the rows of a random ranking."""

ANNOTATED = "annotated"
"""The judgements of the data set itself."""

ALL = "all"
"""The value of `queries` for means over all queries."""

FOLDS = "mean over folds"
"""The value of `queries` for means over folds of the images with their captions."""

MISSING = float("nan")


class Result(NamedTuple):
    """A figure.

    Attributes:
        split: The split.
        method: `model`, the name of a baseline, `chance`, or the row of a paper; in a comparison
            the name of the method.
        seed: The seed of its training; None where there is none.
        matcher: The matcher; empty for baselines and chance.
        reranker: The re-ranker; empty without one.
        judgements: The relevance judgements; `annotated` come with the data set.
        queries: `all`, `mean over folds`, or the number of relevant items of the queries that
            count, such as `3 to 4`.
        direction: `image_to_text`, `text_to_image`, or empty for a figure of both.
        metric: The metric, such as `recall_1`.
        title: The title of its column in tables.
        unit: `fraction`, `percent` (of RSUM alone), `count`, `rank`, `seconds` or
            `correlation`.
        value: The figure. With `minus` it is a difference.
        low: Lower end of its 95 % interval over queries (and seeds); NaN without one. The
            interval of a difference in a comparison has Holm's correction, as `p_holm` has.
        high: Upper end.
        n: Number of queries behind it; 0 where it is not a mean over queries.
        minus: The method that was subtracted; empty for a figure of one method.
        p: Two-sided p-value of a difference; NaN for other figures.
        p_holm: The p-value after Holm's correction.
        detectable: The smallest difference that the test detects with a power of 0.8.
    """

    split: str
    method: str
    seed: int | None
    matcher: str
    reranker: str
    judgements: str
    queries: str
    direction: str
    metric: str
    title: str
    unit: str
    value: float
    low: float = MISSING
    high: float = MISSING
    n: int = 0
    minus: str = ""
    p: float = MISSING
    p_holm: float = MISSING
    detectable: float = MISSING

    @property
    def name(self) -> str:
        """The metric with its direction, such as `i2t_recall_1`."""
        return full_name(self.direction, self.metric)


_NUMBERS = ("value", "low", "high", "p", "p_holm", "detectable")


class Results(Sequence[Result]):
    """A long table of results, which does not change.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterable[Result] = ()) -> None:
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        return Results(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.rows)

    def __add__(self, other: Results) -> Results:
        return Results((*self.rows, *other.rows))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and list(map(_cells, self)) == list(map(_cells, other))

    __hash__ = None  # type: ignore[assignment]

    def select(self, **values: object) -> Results:
        """Returns the rows that have all of these values.

        Args:
            values: By column, a value, or a list, tuple or set of which one must be there.

        Raises:
            AttributeError: If there is no such column.
        """
        wanted = {
            column: set(value) if isinstance(value, list | tuple | set) else {value}
            for column, value in values.items()
        }
        return Results(
            row
            for row in self.rows
            if all(getattr(row, column) in accepted for column, accepted in wanted.items())
        )

    def replace(self, **values: Any) -> Results:
        """Returns the table with these values in each row."""
        return Results(row._replace(**values) for row in self.rows)

    def distinct(self, column: str) -> list[Any]:
        """Returns the values of a column, each once, in order."""
        return list(dict.fromkeys(getattr(row, column) for row in self.rows))

    def summary(self) -> dict[str, float]:
        """Returns the values by names such as `i2t_recall_1`; of several rows, the last."""
        return {row.name: row.value for row in self.rows}

    def to_frame(self) -> pandas.DataFrame:
        """Returns the table as a `pandas.DataFrame`.

        Raises:
            UserError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UserError(
                "a data frame needs pandas: pip install pandas; or read the CSV file"
            ) from None
        return pandas.DataFrame(self.rows, columns=Result._fields)

    def write(self, path: Path) -> None:
        """Writes the table as CSV, whole or not at all.

        Args:
            path: The file.
        """
        atomic_write(path, to_csv([Result._fields, *map(_cells, self.rows)]))

    @classmethod
    def read(cls, path: Path) -> Results:
        """Reads a table that `write` has written; all rows come back as they were.

        Args:
            path: The file.

        Raises:
            OSError: If it cannot be read.
            ValueError: If it is not such a table.
        """
        text = path.read_bytes().decode("utf-8")
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if tuple(header) != Result._fields or not text.endswith("\n"):
            raise ValueError(f"{path} is not a whole table of results")
        return cls(map(_from_cells, rows))

    def _repr_html_(self) -> str:
        """Returns the table in a notebook."""
        shown = [c for c in Result._fields if any(x not in ("", None, 0) for x in _known(self, c))]
        head = "".join(f"<th>{column}</th>" for column in shown)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(getattr(r, c)))}</td>" for c in shown)
            for r in self.rows
        )
        return f"<table><tr>{head}</tr>{body}</table>"


def _known(results: Results, column: str) -> Iterator[Any]:
    values = (getattr(row, column) for row in results)
    return (v for v in values if not (isinstance(v, float) and math.isnan(v)))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def _cells(row: Result) -> list[object]:
    """Returns the cells of a row, where None is an empty one."""
    return [None if isinstance(x, float) and math.isnan(x) else x for x in row]


def _from_cells(cells: Sequence[str]) -> Result:
    if len(cells) != len(Result._fields):
        raise ValueError(f"a row of results has {len(Result._fields)} cells, not {len(cells)}")
    values: dict[str, Any] = dict(zip(Result._fields, map(without_apostrophe, cells), strict=True))
    for column in _NUMBERS:
        values[column] = float(values[column]) if values[column] else MISSING
    values["n"] = int(values["n"])
    values["seed"] = int(values["seed"]) if values["seed"] else None
    return Result(**values)


def rows_of(
    summary: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]] | None = None,
    counts: Mapping[str, int] | None = None,
    further: Mapping[str, Metric] | None = None,
    **key: Any,
) -> Iterator[Result]:
    """Yields a row per metric of a summary.

    Args:
        summary: Values by names such as `i2t_recall_1`, and `rsum`.
        intervals: The ends of their intervals, by the same names, where they are known.
        counts: The number of queries, by direction: `image_to_text` and `text_to_image`, and
            under the empty name for figures of both.
        further: Metrics that are not of this package, by name.
        key: The other columns, such as `split`.
    """
    further = METRICS | {RSUM: Metric(RSUM, "RSUM", "percent")} | dict(further or {})
    empty = dict.fromkeys(("split", "judgements", "matcher", "reranker"), "")
    key = {**empty, "method": MODEL, "seed": None, "queries": ALL, **key}
    for name, value in summary.items():
        direction, short = split_name(name)
        metric = further.get(short) or Metric(short, short)
        low, high = (intervals or {}).get(name, (MISSING, MISSING))
        yield Result(
            direction=direction,
            metric=short,
            title=metric.title.replace("\n", " "),
            unit=metric.unit,
            value=float(value),
            low=low,
            high=high,
            n=(counts or {}).get(direction, 0),
            **key,
        )
