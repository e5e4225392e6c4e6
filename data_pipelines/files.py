"""Writing files so that they appear whole or not at all, and telling whether they still are."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING
from zipfile import BadZipFile

if TYPE_CHECKING:
    import numpy as np

NO_ARRAY = (
    *(OSError, EOFError, BadZipFile, zlib.error, ValueError, OverflowError, MemoryError),
    # The header of an array is read as Python text.
    *(SyntaxError, TokenError),
    # An archive says of itself that it is encrypted, or compressed in an unknown way.
    RuntimeError,
)
"""What `numpy.load` raises of files that hold no whole array."""


def bytes_after(array: np.ndarray, path: Path) -> int:
    """How many bytes a file has after the array that it is memory-mapped as; 0 of other arrays.

    `numpy.load` does not look at them, and an array that lost or won bytes within has others.
    """
    import numpy as np

    if not isinstance(array, np.memmap):
        return 0
    size: int = path.stat().st_size - array.offset - array.nbytes
    return size


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_ASIDE = re.compile(r"\..+\.(?P<process>\d+)\.\d+(\.[a-z0-9.]+)?")


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file under another name, then renames it.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file, and nothing is left
            behind.
    """
    with written_aside(path) as aside:
        aside.write_bytes(content)


@contextmanager
def written_aside(path: Path, suffix: str = "") -> Iterator[Path]:
    """Gives another name under which a file is written; at the end it is renamed, if all went well.

    Args:
        path: The file.
        suffix: See `aside_of`.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file.
    """
    aside = aside_of(path, suffix)
    try:
        yield aside
        put_in_place(aside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def aside_of(path: Path, suffix: str = "") -> Path:
    """The name under which this thread of this process writes a file before it is renamed.

    Args:
        path: The file.
        suffix: How the name must end for whoever writes it, such as ".npz".
    """
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{suffix}")


def put_in_place(aside: Path, path: Path) -> None:
    """Renames a file that was written aside, once the disk has it: it outlives a power cut."""
    sync(aside)
    os.replace(aside, path)
    sync(path.parent)


def reserve(path: Path, size: int) -> None:
    """Makes a file of so many bytes, where the system can reserve them without writing.

    For libraries that do not survive a disk that is full: they write into the file afterwards.

    Raises:
        OSError: If it does not fit on the disk, or is larger than a process may write.
    """
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def sync(path: Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Some file systems cannot do this with a folder.
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_asides(folder: Path, alone: bool = False) -> None:
    """Removes what processes that were killed left aside in a folder.

    Before this process writes anything into the folder: what carries its own number was left by
    an earlier one, which had the same, as in a container.

    Args:
        folder: The folder, which need not be there.
        alone: Whether no other process writes into it, as its lock says: then all is removed. What
            processes that still run write is left otherwise.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        name = _ASIDE.fullmatch(path.name)
        if name is None or (not alone and _runs(int(name["process"]))):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Whether another process of this number runs on this machine."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It is another user's.
    return True
