"""Serves an index: a page to search in, and JSON for programs.

The page is at http://127.0.0.1:8000/, which only this machine can reach. On SIGTERM and Ctrl-C the
server answers pending requests and ends. See docs/how_to/serve.md.

examples:
  keras-xmr serve   # the only index in saved_models
  keras-xmr serve --index=saved_models/csv_pretrained/index --port=8080 --watch
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

from keras_xmr.commands._options import add_index, add_list, add_value, find_index, integer_from
from keras_xmr.search.manifests import MANIFEST
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import has_lock
from keras_xmr.utils.installing import install_command

_LOG = logging.getLogger(__name__)

_PAUSE = 1.0
"""Seconds between two looks for an index."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_index(parser)
    text = "address to listen on; by default only this machine can connect"
    parser.add_argument("--host", default="127.0.0.1", help=text)
    text = "port (default 8000; 0 picks a free one)"
    add_value(parser, "--port", "N", text, type=integer_from(0), default=8000)
    add_list(parser, "--allow-host", "NAME", "host name by which browsers may reach the server")
    parser.add_argument("--wait", action="store_true", help="wait for an index that is yet to come")
    text = "title of the page (default: the name of the folder of the photos)"
    add_value(parser, "--title", "TEXT", text, default="")
    text = "offer the original files, with their EXIF data, also to other machines"
    parser.add_argument("--originals", action="store_true", help=text)
    text = "update the index when photos are added, changed or removed"
    parser.add_argument("--watch", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM or Ctrl-C."""

    try:
        from keras_xmr.search.server.process import is_loopback, serve
        from keras_xmr.search.server.requests import Settings
        from keras_xmr.search.server.service import Service
    except ModuleNotFoundError as error:
        raise UserError(
            f"the server needs {error.name}, which is not installed: {install_command('search')}"
        ) from None

    if arguments.port > 65535:
        raise UserError(f"--port: {arguments.port} is not a valid port; use one up to 65535")
    is_alone = is_loopback(arguments.host)
    settings = Settings(
        title=arguments.title.strip(),
        originals=arguments.originals or (is_alone and not arguments.allow_host),
        names=frozenset(name.lower() for name in (*arguments.allow_host, arguments.host)),
    )
    path = find_index(arguments)
    _wait_for_index(path, arguments.wait)
    service = Service(path, settings)
    if not is_alone:
        _LOG.warning(
            "everyone who can reach %s can search and see these photos, without a password",
            arguments.host,
        )
    count = len(service.index)
    photos = f"{count:,} photo" if count == 1 else f"{count:,} photos"
    serve(
        service,
        arguments.host,
        arguments.port,
        lambda address: print(f"{photos} at {address} (Ctrl-C ends)", flush=True),
        arguments.watch,
    )


def _wait_for_index(path: Path, comes: bool) -> None:
    """Waits until an index that is being made, or that is yet to come, can be opened."""
    is_told = False
    while not (path / MANIFEST).exists() and (comes or has_lock(path)):
        if not is_told:
            _LOG.info("waiting for %s: `index` makes it", path)
            is_told = True
        time.sleep(_PAUSE)
