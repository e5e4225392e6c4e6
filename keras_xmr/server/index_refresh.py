"""Refreshes the index of a server, and updates it when its folder of photos changes."""

from __future__ import annotations

import logging
import time
from threading import Event

from data_pipelines.errors import UserError
from keras_xmr.index.photos import find_photos
from keras_xmr.server.service import Service

_LOG = logging.getLogger(__name__)

CHECK_INTERVAL = 2.0
"""Minimum seconds between two checks of the disk."""

_SHARE = 10
"""Minimum pause, in multiples of the time of a check of the folder of photos."""


def keep_current(service: Service, watch: bool, stopped: Event) -> None:
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
            if watch:
                begin = time.monotonic()
                photos = _photos(service)
                pause = max(pause, _SHARE * (time.monotonic() - begin))
                if photos != known:
                    service.update()
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


def _photos(service: Service) -> dict[str, tuple[int, int]]:
    """Size and time of change of all photos in the folder, by path."""
    photos = find_photos(service.index.root, service.index.path.resolve())
    return {path: (status.st_size, status.st_mtime_ns) for path, status in photos}
