"""Builds the metrics that a config chooses."""

from __future__ import annotations

from collections.abc import Iterable

from keras_xmr.config.registry import Choice, components
from keras_xmr.errors import ArgumentError
from keras_xmr.metrics.base import QueryMetric
from keras_xmr.metrics.names import CHOSEN, METRICS, Metric


def build_metrics(choices: Iterable[Choice]) -> dict[str, QueryMetric]:
    """The metrics of a config by name; each gets a column in the tables."""
    metrics = {}
    for choice in choices:
        made = components("metric")[choice.name].load()(**choice.options())
        if not isinstance(getattr(made, "TITLE", None), str):
            raise ArgumentError(
                f"{type(made).__name__} has no TITLE, which heads its column in the tables; write "
                f"TITLE = {choice.name!r} in the class"
            )
        if choice.name not in METRICS:
            CHOSEN[choice.name] = Metric(choice.name, made.TITLE, made.UNIT, table="many")
        metrics[choice.name] = made
    return metrics
