"""Runs the server until it is told to stop, and lets it finish what it has begun."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable

import uvicorn

from data_pipelines.errors import UserError
from keras_xmr.runs.termination import TerminationNotice
from keras_xmr.server.app import create_app
from keras_xmr.server.index_refresh import keep_current
from keras_xmr.server.middleware import hostname
from keras_xmr.server.service import Service

_LOG = logging.getLogger(__name__)
_BACKLOG = 512
_ON_ITS_WAY = 1.0
_UPDATE_ENDS = 5.0
_KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than clients and proxies keep it, so that these
close it. A request that meets the closing by the server is lost."""

DRAIN = 30
"""Seconds that requests have to end once the server is told to stop."""


class _Server(uvicorn.Server):
    """A server that says that it ends, and still takes what is on its way for a moment."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.state = "draining"
        await asyncio.sleep(_ON_ITS_WAY)
        await super().shutdown(sockets)


def serve(
    service: Service,
    host: str,
    port: int,
    announce: Callable[[str], None],
    watch: bool = False,
) -> None:
    """Serves until SIGTERM or Ctrl-C. What has been asked by then is answered first.

    The page is there at once; the model is loaded meanwhile. An index that changes is opened again.

    Args:
        service: What is served.
        host: The name or address to listen at.
        port: The port, 0 for any that is free.
        announce: Is told the address of the page once it can be asked for.
        watch: Whether the index is kept up to date with its folder of photos.

    Raises:
        UserError: If the port cannot be had, or the model does not belong to the index.
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
        )
        failures: list[UserError] = []
        stopped = threading.Event()
        loader = threading.Thread(
            target=_load,
            args=(service, server, failures, watch, stopped),
            name="loader",
            daemon=True,
        )
        loader.start()
        announce(address(host, listener.getsockname()[1]))
        server.run(sockets=[listener])
        stopped.set()
        service.close()
        # An update ends at its next photos; TensorFlow is better not cut off.
        loader.join(_UPDATE_ENDS)
    if failures:
        raise failures[0]


def listen(host: str, port: int) -> socket.socket:
    """Listens at a port.

    Raises:
        UserError: If it cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise UserError(f"--host: {host!r} is no address of this machine") from None
    except OSError as error:
        raise UserError(
            f"port {port} of {host} cannot be had ({error.strerror}); choose another with --port"
        ) from None


def address(host: str, port: int) -> str:
    """Where the page is, for a browser on this machine."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host == "localhost" or host == "::1" or hostname(host).startswith("127.")


def _load(
    service: Service,
    server: uvicorn.Server,
    failures: list[UserError],
    watch: bool,
    stopped: threading.Event,
) -> None:
    """Loads the model, and looks for changes from then on."""
    try:
        service.warm_up()
    except UserError as error:
        failures.append(error)
        server.should_exit = True
    except Exception as error:
        _LOG.exception("the model cannot be loaded")
        failures.append(UserError(f"the model cannot be loaded: {error}"))
        server.should_exit = True
    else:
        keep_current(service, watch, stopped)
