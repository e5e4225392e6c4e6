"""Locks that admit one process at a time to a folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.files import remove_stale_temporaries

try:
    import fcntl
except ImportError:  # Windows does not have it: folders are not locked there.
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"


class LockedError(UserError):
    """Another process uses a folder; the message names both."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes, and creates it if necessary.

    The system frees the lock of a process that ends, even if it is killed. Temporary files of
    killed processes are removed. On file systems without locks, folders are not locked.

    Args:
        folder: The folder.

    Raises:
        LockedError: If another process holds the lock, or it cannot be written.
    """
    path = folder / _LOCK
    try:
        descriptor = _take(path)
    except OSError as error:
        raise LockedError(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        # Removed while it is held, so that no other process holds it.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            folder.rmdir()  # Succeeds only if the folder is empty.


def has_lock(folder: Path) -> bool:
    """Whether a process holds the lock of a folder, or was killed while it did."""
    return (folder / _LOCK).exists()


def _take(path: Path) -> int:
    """Opens and acquires the lock."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # Its last owner removed the empty folder.
        try:
            is_alone = _lock(descriptor, path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            if is_alone:
                remove_stale_temporaries(path.parent, alone=True)
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "command": sys.argv}).encode())
            return descriptor
        os.close(descriptor)  # Its last owner removed it meanwhile.


def _lock(descriptor: int, folder: Path) -> bool:
    """Locks an open file; returns False where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{folder} is in use by {_owner(descriptor)}. Wait for it to end, or stop it; then "
            "start again"
        ) from None
    except OSError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> str:
    """Returns the owner of the lock, as recorded in the file."""
    try:
        owner = json.loads(os.pread(descriptor, 1 << 16, 0))
        return f"process {owner['pid']} ({' '.join(owner['command'])[:200]})"
    except (ValueError, TypeError, KeyError):
        return "another process"
