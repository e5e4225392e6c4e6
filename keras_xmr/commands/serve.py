"""Serves an index: a page to search in, and JSON for programs.

The page is at http://127.0.0.1:8000/, which this machine alone can reach. Its marks of right and
wrong photos go to judgements.csv in the folder of the index, in the format that evaluation takes.
SIGTERM and Ctrl-C end the server once what was asked is answered; docs/how_to/serve.md has more.

examples:
  keras-xmr serve --index=saved_models/csv_pretrained/index
  keras-xmr serve --index=saved_models/csv_pretrained/index --port=8080 --watch
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.folders import check_folder
from keras_xmr.commands._options import add_index, whole
from keras_xmr.run_folder import load_run

_LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_index(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at; this machine alone by default",
    )
    parser.add_argument(
        "--port",
        type=whole(0),
        default=8000,
        metavar="N",
        help="8000 by default; 0 for any free one",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which browsers may ask for the server; may be given several times",
    )
    parser.add_argument(
        "--marks", type=Path, metavar="FILE", help="where marks go, in place of judgements.csv"
    )
    parser.add_argument(
        "--originals",
        action="store_true",
        help="gives the files of photos, with their EXIF data, also where others are let in",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="keeps the index up to date: with photos that are added, changed and removed",
    )


def run(arguments: argparse.Namespace) -> None:
    """Serves until it is told to stop."""
    try:
        from keras_xmr.server.run import is_loopback, serve
        from keras_xmr.server.service import Service
        from keras_xmr.server.settings import Settings
    except ModuleNotFoundError as error:
        raise UserError(
            f"the server needs {error.name}, which is not installed: pip install 'keras-xmr[serve]'"
        ) from None

    if arguments.port > 65535:
        raise UserError(f"--port: {arguments.port} is no port; choose one up to 65535")
    if arguments.run:
        load_run(arguments.run)
    if arguments.marks:
        check_folder(arguments.marks.parent)
    is_alone = is_loopback(arguments.host)
    settings = Settings(
        marks=arguments.marks or arguments.index / "judgements.csv",
        originals=arguments.originals or (is_alone and not arguments.allow_host),
        names=frozenset(name.lower() for name in (*arguments.allow_host, arguments.host)),
    )
    service = Service(arguments.index, settings, arguments.run)
    if not is_alone:
        _LOG.warning(
            "whoever can reach %s can search and see these photos, and mark them: there is no "
            "password",
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
