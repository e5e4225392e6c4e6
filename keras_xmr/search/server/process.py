"""The server: guards requests, keeps its index current, and answers pending requests at its end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_xmr.search.server import routes
from keras_xmr.search.server.requests import add_error_handlers, error_response
from keras_xmr.search.server.running import announced
from keras_xmr.search.server.service import Service
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.memory import release_memory
from keras_xmr.utils.termination import TerminationNotice

_LOG = logging.getLogger(__name__)

CHECK_INTERVAL = 2.0
"""Minimum seconds between two checks of the disk."""

_SHARE = 10
"""Minimum pause, in multiples of the time of a check of the folder of photos."""


def keep_current(service: Service, watch: bool, stopped: threading.Event) -> None:
    """Reopens the index whenever it has changed, until it is stopped.

    Folders are polled: notifications of the system miss changes by other machines in a shared
    folder.

    Args:
        service: The service.
        watch: Whether the index is updated when photos are added, changed or removed.
        stopped: Event that ends the loop.
    """
    known, reported, pause = None, "", 0.0
    while not stopped.wait(pause):
        pause = CHECK_INTERVAL
        try:
            # An update of the run may have replaced the index: by a new model, too.
            service.refresh()
            if watch:
                begin = time.monotonic()
                photos = service.index.files()
                pause = max(pause, _SHARE * (time.monotonic() - begin))
                if photos != known:
                    service.update()
                    release_memory()
                    known = photos
                    service.refresh()
            reported = ""
        except UserError as error:
            # The index is unchanged; the cause may be temporary: an unmounted disk, another writer.
            if not stopped.is_set() and str(error) != reported:
                reported = str(error)
                _LOG.warning("the index is not updated: %s", error)
        except Exception as error:
            if repr(error) != reported:
                reported = repr(error)
                _LOG.exception("the index is not updated")


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

    HEAD is answered as GET, without a body.

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
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # The server leaves the body out.

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
    """Returns the name or address in a `Host` header, without its port; may be empty."""
    return (_split(f"//{host}").hostname or "").rstrip(".")


def _split(address: str) -> SplitResult:
    """Returns the parts of an address; empty if it is invalid."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _size_message(limit: int) -> str:
    return f"the request is too large: the limit is {limit:,} bytes"


# Newer versions of FastAPI would send requests where variables of the environment say; older ones
# ignore this.
_NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)


def create_app(service: Service) -> FastAPI:
    """Creates the application of a service.

    The pages of documentation of FastAPI are off, since they load scripts from elsewhere;
    `/openapi.json` describes the requests.

    Args:
        service: The service of its routes.
    """
    app = FastAPI(title="keras_xmr", docs_url=None, redoc_url=None, telemetry=_NO_TELEMETRY)
    app.state.service = service
    app.include_router(routes.router)
    add_error_handlers(app)
    app.add_middleware(RequestGuard, service=service)
    return app


_BACKLOG = 512
_ACCEPT_LONGER = 1.0
_UPDATE_TIMEOUT = 5.0
_KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than by clients and proxies, so that these close
it. A request that crosses the closing by the server would be lost."""

DRAIN = 30
"""Grace period of pending requests when the server stops, in seconds."""


class _Server(uvicorn.Server):
    """A server that announces its end, and accepts requests for a moment longer.

    Attributes:
        stopped: Whether it was stopped.
        failure: The reason why the model could not be loaded.
    """

    def __init__(self, config: uvicorn.Config, service: Service, watch: bool) -> None:
        super().__init__(config)
        self._service, self._watch = service, watch
        self.stopped = threading.Event()
        self.failure: UserError | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.state = "draining"
        await asyncio.sleep(_ACCEPT_LONGER)
        await super().shutdown(sockets)

    def load(self) -> None:
        """Loads the model, and then watches for changes."""
        try:
            self._service.warm_up()
            release_memory()
        except UserError as error:
            self.failure = error
        except Exception as error:
            _LOG.exception("the model cannot be loaded")
            self.failure = UserError(f"the model cannot be loaded: {error}")
        if self.failure is None:
            keep_current(self._service, self._watch, self.stopped)
        else:
            self.should_exit = True


def serve(
    service: Service,
    host: str,
    port: int,
    announce: Callable[[str], None],
    watch: bool = False,
) -> None:
    """Serves until SIGTERM or Ctrl-C. Pending requests are answered first.

    The page is available while the model is loading. A changed index is reopened.

    Args:
        service: The service.
        host: The name or address to listen on.
        port: The port; 0 picks a free one.
        announce: Called with the address of the page once it is available.
        watch: Whether the index is updated when its folder of photos changes.

    Raises:
        UserError: If the port is not available, or the model did not make the index.
    """
    with TerminationNotice(), listen(host, port) as listener:
        server = _Server(
            uvicorn.Config(
                create_app(service),
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=DRAIN,
            ),
            service,
            watch,
        )
        loader = threading.Thread(target=server.load, name="loader", daemon=True)
        loader.start()
        address = page_address(host, listener.getsockname()[1])
        announce(address)
        with announced(service.path, address, service.id):
            server.run(sockets=[listener])
        server.stopped.set()
        service.close()
        # An update ends at its next photos; TensorFlow should not be interrupted.
        loader.join(_UPDATE_TIMEOUT)
    if server.failure is not None:
        raise server.failure


def listen(host: str, port: int) -> socket.socket:
    """Listens on a port.

    Raises:
        UserError: If it is not available.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise UserError(f"--host: cannot bind to {host!r}; use one of this machine") from None
    except OSError as error:
        raise UserError(
            f"port {port} of {host} is not available ({error.strerror}); use another --port"
        ) from None


def page_address(host: str, port: int) -> str:
    """Returns the address of the page, for a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/"


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    return host == "localhost" or host == "::1" or hostname(host).startswith("127.")
