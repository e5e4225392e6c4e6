"""What killed processes leave of what they write aside until it is whole."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

_ASIDE = re.compile(r"\..+\.(?P<process>\d+)\.\d+(\.[a-z0-9.]+)?")


def remove_abandoned(folder: Path) -> None:
    """Removes what processes that were killed left aside in a folder.

    Before this process writes anything into the folder: what carries its own number was left by
    an earlier one, which had the same, as in a container.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        name = _ASIDE.fullmatch(path.name)
        if name is None or _runs(int(name["process"])):
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
