"""Writing files so that they appear whole or not at all, and telling whether they still are."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import zlib
from contextlib import nullcontext, suppress
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

NO_ARRAY = (
    *(OSError, EOFError, BadZipFile, zlib.error, ValueError, OverflowError, MemoryError),
    # The header of an array is read as Python text.
    *(SyntaxError, TokenError),
)
"""What `numpy.load` raises of files that hold no whole array."""


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_ASIDE = re.compile(r"\..+\.\d+\.\d+(\.[a-z0-9.]+)?")


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file under another name, then renames it.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file, and nothing is left
            behind.
    """
    aside = aside_of(path)
    try:
        aside.write_bytes(content)
        put_in_place(aside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
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


def sync(path: Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Some file systems cannot do this with a folder.
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_asides(folder: Path) -> None:
    """Removes what killed processes have left aside in a folder that no other process writes."""
    for path in folder.glob(".*"):
        if _ASIDE.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
