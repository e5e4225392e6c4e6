"""The table of all metrics of an evaluation: titles, units, and the tables that show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from keras_xmr.metrics.label_matches import ZETAS
from keras_xmr.metrics.ranking import NDCG_AT, RECALL_AT, RELEVANT_AT
from keras_xmr.metrics.semantic import ASP_CHANCE, ASP_TOP, RELEASED_ASP_AT
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name, split_name


@dataclass(frozen=True)
class Metric:
    """A metric of a direction.

    Attributes:
        name: The name in a summary, without the direction.
        title: Heads its column.
        unit: Fractions are shown in percent.
        table: The table in an evaluation: the first, the one of many relevant items or of curves
            over N or K; or none.
        compared: The place in comparisons: in the tables, in plots and matrices of differences too,
            or not at all.
        mean_of: The metrics that it is the mean of; empty if it has a value for every query.
    """

    name: str
    title: str
    unit: Literal["fraction", "percent", "count", "rank", "correlation", "seconds"] = "fraction"
    table: Literal["main", "many", "curve"] | None = None
    compared: Literal["table", "headline"] | None = None
    mean_of: tuple[str, ...] = ()


METRICS = {
    metric.name: metric
    for metric in (
        *(
            Metric(f"recall_{k}", f"R@{k}", table="main", compared="table" if k > 1 else "headline")
            for k in RECALL_AT
        ),
        Metric("r_precision", "R-P", table="main", compared="headline"),
        Metric("map_at_r", "mAP@R", table="main", compared="table"),
        Metric("median_rank", "MedR", "rank", "main"),
        Metric("mean_rank", "MeanR", "rank", "main"),
        *(Metric(f"relevant_{k}", f"relevant@{k}", "count", "many") for k in RELEVANT_AT),
        *(Metric(f"precision_{k}", f"P@{k}") for k in RELEVANT_AT),
        *(Metric(f"ndcg_{k}", f"nDCG@{k}", table="many", compared="table") for k in NDCG_AT),
        Metric("bpref", "bpref", table="many", compared="table"),
        *(Metric(f"pmrp_{zeta}", f"PMRP\nzeta = {zeta}") for zeta in ZETAS),
        Metric(
            "pmrp",
            "PMRP",
            table="many",
            compared="table",
            mean_of=tuple(f"pmrp_{zeta}" for zeta in ZETAS),
        ),
        Metric("asp", "ASP", table="many", compared="headline"),
        Metric(ASP_CHANCE, "ASP\nat chance"),
        Metric("asp_tf_idf", "ASP\n(TF-IDF)", table="many"),
        *(Metric(f"asp_top_{n}", f"N = {n}", table="curve") for n in ASP_TOP),
        *(
            Metric(f"released_asp_{k}", f"released\nASP@{k}", table="curve")
            for k in RELEASED_ASP_AT
        ),
    )
}
"""All metrics of a direction, by name, in the order of their columns."""

RSUM = "rsum"
"""The sum of all recalls of both directions, in percent: from 0 to 600."""


def metric_names() -> list[str]:
    """Returns the names in a summary of both directions: `i2t_recall_1` and so on, and `rsum`."""
    return [full_name(direction, name) for direction in DIRECTIONS for name in METRICS] + [RSUM]


def metric_title(name: str) -> str:
    """Returns the title of a column of a metric such as `i2t_recall_1`."""
    if name == RSUM:
        return "RSUM"
    direction, short = split_name(name)
    metric = METRICS.get(short)
    title = metric.title if metric else short
    return f"{SHORT[direction]}\n{title}" if direction else title


def metric_value(name: str, value: float | None) -> str:
    """Returns the text of a value, as in tables: in percent, if it is a fraction.

    Args:
        name: The metric, with or without the direction: `i2t_recall_1` or `recall_1`.
        value: The value; None if it is missing.
    """
    return shown_value(metric_unit(name), value)


def shown_value(unit: str, value: float | None) -> str:
    """Formats a value as in tables.

    Args:
        unit: The unit; fractions are in percent.
        value: The value; None if it is missing.
    """
    if value is None:
        return "-"
    if unit == "correlation":
        return f"{value:+.2f}"
    if unit == "seconds":
        return f"{value:.3g}"
    return f"{in_percent(unit, value):.{2 if unit == 'count' else 1}f}"


def in_percent(unit: str, value: float) -> float:
    """Converts a value, a difference or a deviation as tables show it: fractions to percent.

    Args:
        unit: The unit.
        value: The value as a summary has it. RSUM, ranks and counts stay.
    """
    return 100 * value if unit == "fraction" else value


def metric_unit(name: str) -> str:
    """Returns the unit of a metric, with or without the direction; of `rsum`, "percent"."""
    if name == RSUM:
        return "percent"
    metric = METRICS.get(name) or METRICS.get(split_name(name)[1])
    return metric.unit if metric else "fraction"
