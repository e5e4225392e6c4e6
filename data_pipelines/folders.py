"""Looks at folders before work is done for what would be written there."""

from __future__ import annotations

import os
from pathlib import Path

from data_pipelines.errors import UserError


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
