"""Builds the metrics that a config chooses."""

from __future__ import annotations

from collections.abc import Iterable

from keras_xmr.config.registry import Choice, components
from keras_xmr.metrics.base import QueryMetric
from keras_xmr.metrics.names import METRICS, Metric


def build_metrics(choices: Iterable[Choice]) -> dict[str, QueryMetric]:
    """The metrics of a config by name; each gets a row in the table of all metrics."""
    metrics = {}
    for choice in choices:
        made = components("metric")[choice.name].load()(**choice.options())
        METRICS.setdefault(
            choice.name,
            Metric(choice.name, made.TITLE, made.UNIT, table="many", compared="table"),
        )
        metrics[choice.name] = made
    return metrics
