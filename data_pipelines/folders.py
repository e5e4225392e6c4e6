"""Checks output folders before work begins."""

from __future__ import annotations

import os
from pathlib import Path

from data_pipelines.errors import UserError


def check_folder(path: Path) -> None:
    """Checks that files can be written to a folder, which need not exist yet.

    Args:
        path: The folder.

    Raises:
        UserError: If it, or its closest existing parent, is not a writable folder.
    """
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not os.path.isdir(existing):
        raise UserError(f"{existing} is not a folder; choose another place, or move it away")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"{existing} cannot be written to; choose another place, or change its permissions"
        )
