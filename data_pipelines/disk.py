"""What to say when records cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import tensorflow as tf


def disk_message(folder: Path, error: Exception) -> str:
    """What to say of a folder of records that could not be written."""
    full = isinstance(error, tf.errors.ResourceExhaustedError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    )
    # TensorFlow tells by its text alone.
    if full or any(text in str(error) for text in ("No space left", "File too large")):
        return (
            f"the disk of {folder} is full. Finished shards are kept: free some space and run "
            "again, and the work goes on where it stopped"
        )
    return f"{folder} cannot be written: {error}"
