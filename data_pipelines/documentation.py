"""Where the pages of the documentation are: in a checkout, or within the installed package."""

from __future__ import annotations

import re
from pathlib import Path


def page(name: str) -> str:
    """The path of a page of the documentation, which opens from the current folder.

    Args:
        name: The file in the folder of the pages, such as `data.md`.
    """
    here = Path(__file__).parent.parent
    packaged = here / "keras_xmr" / "docs"
    path = (packaged if packaged.is_dir() else here / "docs") / name
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):  # The current folder is another, or was deleted.
        return str(path)


def with_pages(text: str) -> str:
    """A text in which pages are named as in a checkout (`docs/data.md`), with their paths."""
    return re.sub(r"\bdocs/(\w+\.md)", lambda match: page(match[1]), text)
