"""Reads parts of many files, of which few are open at a time."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

LIMIT = 64
"""How many files stay open; a process may have about 1,000 on most machines."""


@dataclass(slots=True)
class _File:
    number: int
    users: int = 0


class OpenFiles:
    """Files that stay open between reads; of those that nobody reads, the last `limit`.

    Can be used from several threads. The files are closed with the object.

    Args:
        limit: How many files stay open. While more threads than that read, there are more.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._files: dict[Path, _File] = {}  # the one that was read last is the last
        self._lock = threading.Lock()
        # At the end of the process, where threads may still read, they are left to the system.
        weakref.finalize(self, _close_down_to, self._files, 0).atexit = False

    def read(self, path: Path, length: int, offset: int) -> bytes:
        """Reads a part of a file; less than `length` bytes where the file ends before.

        Args:
            path: The file.
            length: How many bytes are read.
            offset: The first of them.

        Raises:
            OSError: If the file cannot be read.
        """
        with self._lock:
            file = self._files.pop(path, None) or _File(os.open(path, os.O_RDONLY))
            self._files[path] = file
            file.users += 1
        try:
            return os.pread(file.number, length, offset)
        finally:
            with self._lock:
                file.users -= 1
                _close_down_to(self._files, self.limit)


def _close_down_to(files: dict[Path, _File], limit: int) -> None:
    """Closes files that nobody reads, those that were not read for longest first."""
    idle = [path for path, file in files.items() if not file.users]
    for path in idle[: max(len(files) - limit, 0)]:
        os.close(files.pop(path).number)
