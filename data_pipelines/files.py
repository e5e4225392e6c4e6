"""Writing files so that they appear whole or not at all, where they can be written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from data_pipelines.errors import UserError


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


def check_folder(path: Path) -> None:
    """Checks that files can be written to a folder, which need not be there yet.

    Args:
        path: The folder.

    Raises:
        UserError: If it, or what it would be made in, is no folder or cannot be written to.
    """
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not os.path.isdir(there):
        raise UserError(f"{there}: is no folder; choose another place, or move it away")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there}: cannot be written to; choose another place, or permit it")
