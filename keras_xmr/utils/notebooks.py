"""Output in Jupyter notebooks, where standard error is no terminal but shows progress bars."""

from __future__ import annotations

import html
import logging
import sys
from typing import Any


def in_notebook() -> bool:
    """Returns whether this is the kernel of a notebook; imports nothing."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show_log() -> None:
    """Shows the messages of the package below the cell, as the command line prints them.

    Messages that a program handles in its own way stay as they are.
    """
    logger = logging.getLogger("keras_xmr")
    if not (logger.handlers or logging.getLogger().handlers):
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        # Root handlers that come later would print them twice.
        logger.propagate = False
        logging.getLogger("tensorflow").setLevel(logging.WARNING)


def frame(page: str, height: int = 800) -> str:
    """Wraps a page of HTML, with its styles, for the output of a cell.

    Args:
        page: The page, which needs no other files.
        height: Of the frame, in pixels.
    """
    return (
        f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" '
        'style="border: 0"></iframe>'
    )
