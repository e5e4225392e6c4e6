"""Metrics of the server for Prometheus, which are sent nowhere."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "ServerMetrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class ServerMetrics:
    """The metrics of one server; those of several in one process are separate.

    Attributes:
        broken: Number of uploaded images that were refused.
    """

    def __init__(self) -> None:
        prefix, registry = "keras_xmr", CollectorRegistry()
        labels = ("route", "status")
        self._registry = registry
        self._requests = Counter(
            f"{prefix}_requests", "Requests, by route and status.", labels, registry=registry
        )
        text = "Time to answer a request, in seconds."
        self._seconds = Histogram(
            f"{prefix}_request_seconds", text, ("route",), buckets=_SECONDS, registry=registry
        )
        text = "Texts or images that the model embedded at once."
        self._batches = Histogram(
            f"{prefix}_batch_size", text, ("kind",), buckets=_SIZES, registry=registry
        )
        text = "Uploaded images that were refused."
        self.broken = Counter(f"{prefix}_broken_uploads", text, registry=registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, kind: str, size: int) -> None:
        """Counts a batch of the model; `kind` is texts or images."""
        self._batches.labels(kind).observe(size)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is computed at every export."""
        Gauge(f"keras_xmr_{name}", text, registry=self._registry).set_function(value)

    def export(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
