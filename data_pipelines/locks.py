"""One process at a time in a folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.files import remove_asides

try:
    import fcntl
except ImportError:  # There is none on Windows: folders are not locked there.
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"


class LockedError(UserError):
    """Another process works in a folder; the message names both."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a folder, which is made if there is none.

    The system itself frees the lock of a process that ends, however it ends. What killed
    processes have left aside is removed. On file systems without locks, folders are not locked.

    Args:
        folder: The folder.

    Raises:
        LockedError: If another process has it, or the lock cannot be written.
    """
    path = folder / _LOCK
    try:
        descriptor = _take(path)
    except OSError as error:
        raise LockedError(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        # Removed while it is held: nobody else can have it then.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            folder.rmdir()  # Only an empty folder can be: nothing has come of the work.


def has_lock(folder: Path) -> bool:
    """Whether a process holds the lock of a folder, or was killed while it did."""
    return (folder / _LOCK).exists()


def _take(path: Path) -> int:
    """Opens the lock and takes it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # Its last owner has removed the folder, which was empty.
        try:
            is_alone = _lock(descriptor, path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            if is_alone:
                remove_asides(path.parent, alone=True)
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "command": sys.argv}).encode())
            return descriptor
        os.close(descriptor)  # Its last owner has removed it meanwhile.


def _lock(descriptor: int, folder: Path) -> bool:
    """Locks an open file; returns False where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{folder} is in use by {_owner(descriptor)}. Wait until that ends, or stop it; then "
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
    """Who has the lock, as it has written there."""
    try:
        owner = json.loads(os.pread(descriptor, 1 << 16, 0))
        return f"process {owner['pid']} ({' '.join(owner['command'])[:200]})"
    except (ValueError, TypeError, KeyError):
        return "another process"
