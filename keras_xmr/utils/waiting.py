"""Names current work on a terminal, and hides all progress of some work.

Progress bars are in another file: importing `tqdm` takes time that a search from the
prompt need not spend.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WAITING: list[str] = []
"""Descriptions of current work, the innermost last."""

_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)


@contextmanager
def bars(shown: bool) -> Iterator[None]:
    """Shows the progress bars that are made inside, or none of them."""
    before = _SHOWN.set(shown and _SHOWN.get())
    try:
        yield
    finally:
        _SHOWN.reset(before)


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Shows a description of work on a terminal, such as an import, until the work is done.

    Also a decorator. Other output overwrites it.

    Args:
        description: The work, such as `loading TensorFlow`.
    """
    is_shown = sys.stderr.isatty() and not is_silent()
    _WAITING.append(description)
    try:
        _show_waiting(is_shown)
        yield
    finally:
        _WAITING.pop()
        _show_waiting(is_shown)


def _show_waiting(is_shown: bool) -> None:
    if is_shown:
        # The cursor stays in front, so that the next line is written over this one.
        print(f"\r\033[K{_WAITING[-1]} ...\r" if _WAITING else "\r\033[K", end="", file=sys.stderr)
        sys.stderr.flush()


def is_silent() -> bool:
    """Returns whether progress is hidden, by `bars` or the environment variable TQDM_DISABLE."""
    return not _SHOWN.get() or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
