"""What to say when something cannot be written. Needs no TensorFlow."""

from __future__ import annotations

import errno
import re
from pathlib import Path

_FULL = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EFBIG: "File too large",
}
# What NumPy says of a file that it could write in part.
_IN_PART = re.compile(r"\d+ requested and \d+ written")
_CLOSED = {errno.EROFS: "Read-only file system", errno.EACCES: "Permission denied"}


def disk_message(folder: Path, error: Exception) -> str:
    """What to say of a folder of records that could not be written."""
    if _among(_FULL, error):
        return (
            f"the disk of {folder} is full. Finished shards are kept: free some space and run "
            "again, and the work goes on where it stopped"
        )
    return f"{folder} cannot be written: {error}"


def disk_trouble(error: Exception) -> str | None:
    """What to say of an error, even one of TensorFlow or of HDF5, if the disk is its cause."""
    full = _among(_FULL, error)
    why = full or _among(_CLOSED, error)
    if why is None:
        return None
    path = getattr(error, "filename", None) or _path_in(str(error))
    what = f"{path}: {why}" if path else why
    return f"{what}; free some space and start again: what is finished stays" if full else what


def _among(known: dict[int, str], error: Exception) -> str | None:
    """What a system calls an error, if it is one of those that are known."""
    if isinstance(error, OSError) and error.errno in known:
        return known[error.errno]
    if known is _FULL and _IN_PART.search(str(error)):
        return known[errno.ENOSPC]
    return next((text for text in known.values() if text in str(error)), None)


def _path_in(text: str) -> str | None:
    found = re.search(r"(?<![\w.])/[^\s'\",;:\]]+", text)
    return found[0] if found else None
