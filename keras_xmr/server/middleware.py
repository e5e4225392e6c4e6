"""Middleware that checks every request, and adds headers to every response."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_xmr.server.errors import error_response
from keras_xmr.server.service import Service

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class RequestGuard:
    """Rejects requests of other sites and of too many bytes; adds headers; counts requests.

    A page of another site can make a browser send requests to a server on loopback, by a name that
    it lets point there (DNS rebinding) or by a form. So the Host header must have an allowed name
    or an address, which cannot be rebound, and requests that send data must come from our page.

    Args:
        app: The application.
        service: The service with the settings and metrics.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Other protocols are not supported; "lifespan" is the start and end of the server.
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), [0]

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._service.state == "draining":
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self._answer(scope, receive, send_on)
        except asyncio.CancelledError:
            # The server stops, after its grace period.
            if status[0]:
                raise
            ended = "the server stopped before it could answer"
            await error_response(503, ended)(scope, receive, send_on)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            metrics = self._service.metrics
            metrics.requests.labels(route, str(status[0] or 500)).inc()
            metrics.seconds.labels(route).observe(time.perf_counter() - begin)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; one beyond its limit is not read further, and gets an error."""
        headers, settings = Headers(scope=scope), self._service.settings
        is_form = headers.get("content-type", "").startswith("multipart/form-data")
        limit = left = settings.max_body if is_form else settings.max_json

        async def receive_some() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def send_some(message: Message) -> None:
            if left >= 0:
                await send(message)

        refusal = self._refusal(scope, headers, limit)
        if refusal is None:
            await self._app(scope, receive_some, send_some)
            if left >= 0:
                return
            refusal = 413, _size_message(limit)
        await error_response(*refusal)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, limit: int) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_allowed(host):
            return 421, (
                f"unknown Host header {host[:100]!r}; start the server with --allow-host=NAME to "
                "allow a name"
            )
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD") and origin and _split(origin).netloc != host:
            return 403, "requests from pages of another site are not allowed"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > limit:
            return 413, _size_message(limit)
        return None

    def _is_allowed(self, host: str) -> bool:
        name = hostname(host)
        if name == "localhost" or name in self._service.settings.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def hostname(host: str) -> str:
    """The name or address in a `Host` header, without its port; may be empty."""
    return (_split(f"//{host}").hostname or "").rstrip(".")


def _split(address: str) -> SplitResult:
    """The parts of an address; empty if it is invalid."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _size_message(limit: int) -> str:
    return f"the request is too large: the limit is {limit:,} bytes"
