"""Paths of the pages of the documentation, in a checkout or in the installed package."""

from __future__ import annotations

import re
from pathlib import Path


def page(name: str) -> str:
    """Returns the path of a page of the documentation, relative to the current folder if possible.

    Args:
        name: The file below the folder of the pages, such as `how_to/data.md`.
    """
    here = Path(__file__).parents[2]
    packaged = here / "keras_xmr" / "docs"
    path = (packaged if packaged.is_dir() else here / "docs") / name
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):  # The current folder is another, or was deleted.
        return str(path)


def with_pages(text: str) -> str:
    """Replaces names of pages (`docs/how_to/data.md`) in a text with their paths."""
    return re.sub(r"\bdocs/((?:\w+/)*\w+\.md)", lambda match: page(match[1]), text)
