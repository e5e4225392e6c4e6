"""Metrics of the server for Prometheus, which are sent nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class ServerMetrics:
    """The metrics of one server; those of several in one process are separate.

    Attributes:
        registry: All metrics.
        requests: Number of answered requests, by route and status.
        seconds: Time to answer a request, by route.
        batches: Size of the batches of the model, by kind: texts or images.
        broken: Number of uploaded images that were refused.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "Requests, by route and status."
        self.requests = self._new(Counter, "requests", text, "route", "status")
        text = "Time to answer a request, in seconds."
        self.seconds = self._new(Histogram, "request_seconds", text, "route", buckets=_SECONDS)
        text = "Texts or images that the model embedded at once."
        self.batches = self._new(Histogram, "batch_size", text, "kind", buckets=_SIZES)
        text = "Uploaded images that were refused."
        self.broken = self._new(Counter, "broken_uploads", text)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is computed at every export."""
        self._new(Gauge, name, text).set_function(value)

    def _new(self, kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
        return kind(f"keras_xmr_{name}", text, labels, registry=self.registry, **options)
