"""Suffixes of photos, and the error of a file that cannot be used. Imports nothing."""

from __future__ import annotations

RAW_SUFFIXES = frozenset(
    {
        *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".iiq", ".kdc", ".mrw", ".nef"),
        *(".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".srw", ".x3f"),
    }
)
"""Suffixes of camera RAW files, in lower case."""

PHOTO_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        *(".avif", ".heic", ".heif", ".jxl"),
        *RAW_SUFFIXES,
    }
)
"""Suffixes of photos, in lower case. RAW files are included to report that they are not
supported."""


class UnreadableError(Exception):
    """An item of a data set cannot be used; the message names it and the reason."""
