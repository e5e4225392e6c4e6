"""Memory that is free again."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def release_memory() -> None:
    """Returns freed memory to the system, with the C library of GNU; without it, does nothing.

    Reading a model leaves as much memory again that is freed, but stays with the process.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
