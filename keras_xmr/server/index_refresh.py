"""Keeps a server up to date with its index, and the index with its folder of photos."""

from __future__ import annotations

import logging
import time
from threading import Event

from data_pipelines.errors import UserError
from keras_xmr.index.photos import find_photos
from keras_xmr.server.service import Service

_LOG = logging.getLogger(__name__)

LOOK_AFTER = 2.0
"""Seconds between two looks at the disk; more where a look takes long."""

_SHARE = 10
"""A look at the folder of photos takes at most this part of the time between two."""


def keep_current(service: Service, watch: bool, stopped: Event) -> None:
    """Opens the index again whenever it has changed, until it is stopped.

    Folders are read again and again: systems that tell of changes do not tell of those that
    another machine makes in a shared folder.

    Args:
        service: The service.
        watch: Whether photos that are added, changed and removed are brought into the index.
        stopped: Ends it.
    """
    known, told, pause = None, "", 0.0
    while not stopped.wait(pause):
        pause = LOOK_AFTER
        try:
            if watch:
                begin = time.monotonic()
                there = _photos(service)
                pause = max(pause, _SHARE * (time.monotonic() - begin))
                if there != known:
                    service.update()
                    known = there
            service.refresh()
            told = ""
        except UserError as error:
            # The index is as it was, and this may pass: a disk that is away, another writer.
            if not stopped.is_set() and str(error) != told:
                told = str(error)
                _LOG.warning("the index stays as it is: %s", error)
        except Exception as error:
            if repr(error) != told:
                told = repr(error)
                _LOG.exception("the index stays as it is")


def _photos(service: Service) -> dict[str, tuple[int, int]]:
    """Length and time of change of all photos in the folder, by path."""
    found = find_photos(service.index.root, service.index.path.resolve())
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found}
