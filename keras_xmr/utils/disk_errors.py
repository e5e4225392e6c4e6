"""Messages about disks that are full or cannot be written."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_FULL = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)}
# The message of NumPy about a file that was written in part.
_IN_PART = re.compile(r"\d+ requested and \d+ written")
_CLOSED = {code: os.strerror(code) for code in (errno.EROFS, errno.EACCES)}


def disk_message(folder: Path, error: Exception) -> str:
    """Returns the message about a folder of records that could not be written."""
    if _known_reason(_FULL, error):
        return (
            f"the disk of {folder} is full. Finished shards are kept: free some space and run "
            "again, and the work goes on where it stopped"
        )
    return f"{folder} cannot be written: {error}"


def disk_error_message(error: Exception) -> str | None:
    """Returns the message for an error of Python, TensorFlow or HDF5 about the disk, or None."""
    full = _known_reason(_FULL, error)
    why = full or _known_reason(_CLOSED, error)
    if why is None:
        return None
    path = getattr(error, "filename", None)
    if not path and (match := re.search(r"(?<![\w.])/[^\s'\",;:\]]+", str(error))):
        path = match[0]
    message = f"{path}: {why}" if path else why
    if full:
        message += "; free some space and start again: finished work is kept"
    return message


def _known_reason(known: dict[int, str], error: Exception) -> str | None:
    """Returns the system's description of an error if it is one of the known ones."""
    if isinstance(error, OSError) and error.errno in known:
        return known[error.errno]
    if known is _FULL and _IN_PART.search(str(error)):
        return known[errno.ENOSPC]
    return next((text for text in known.values() if text in str(error)), None)
