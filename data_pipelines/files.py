"""Writing files so that they appear whole or not at all, and telling whether they still are."""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
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


def write_aside(path: Path, content: bytes) -> None:
    """Writes a file under another name, then renames it.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file, and nothing is left
            behind.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
