"""What the server counts of itself, for Prometheus. Nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Measures"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32)


class Measures:
    """Counters, of this server alone: several in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "keras_xmr_requests",
            "Requests, by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "keras_xmr_request_seconds",
            "Time to answer a request, in seconds.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batches = Histogram(
            "keras_xmr_batch_size",
            "Texts or images that the model embedded at once.",
            ("kind",),
            buckets=_SIZES,
            registry=self._registry,
        )
        self._broken = Counter(
            "keras_xmr_broken_uploads",
            "Uploaded images that were refused.",
            registry=self._registry,
        )

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, kind: str, size: int) -> None:
        """Counts what the model was given at once; `kind` is texts or images."""
        self._batches.labels(kind).observe(size)

    def count_broken(self, number: int) -> None:
        """Counts images that were refused."""
        self._broken.inc(number)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is looked up whenever it is asked for."""
        Gauge(f"keras_xmr_{name}", text, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)
