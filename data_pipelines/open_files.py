"""Reading parts of many files with few open at a time."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

LIMIT = 64
"""Maximum number of open files; most systems allow about 1,000 per process."""


@dataclass(slots=True)
class _File:
    number: int
    users: int = 0


class OpenFiles:
    """Cache of the last `limit` open files. Thread-safe; the files are closed with the object.

    Args:
        limit: Maximum number of open files, unless more threads are reading.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._files: dict[Path, _File] = {}  # most recently read last
        self._lock = threading.Lock()
        # Not at exit, when threads may still be reading: the system closes them.
        weakref.finalize(self, _close_idle, self._files, 0).atexit = False

    def read(self, path: Path, length: int, offset: int) -> bytes:
        """Reads a part of a file; fewer than `length` bytes at its end.

        Args:
            path: The file.
            length: Number of bytes.
            offset: Position of the first byte.

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
                _close_idle(self._files, self.limit)


def _close_idle(files: dict[Path, _File], limit: int) -> None:
    """Closes the least recently read files that are not being read."""
    idle = [path for path, file in files.items() if not file.users]
    for path in idle[: max(len(files) - limit, 0)]:
        os.close(files.pop(path).number)
