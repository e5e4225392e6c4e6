"""Progress bars with rates; plain lines without a terminal.

Work without a rate is named on a terminal while it lasts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

from keras_xmr.utils.notebooks import in_notebook

_SECONDS = 30.0
"""Seconds between two lines of a log file."""

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
    is_shown = sys.stderr.isatty() and not _is_silent()
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


def _is_silent() -> bool:
    return not _SHOWN.get() or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")


class Progress(tqdm):  # type: ignore[type-arg]  # It is generic in its stubs alone.
    """A `tqdm` bar on standard error.

    On a terminal and in a notebook it redraws itself; in a log file it writes a line every half
    minute. With
    `TQDM_DISABLE=1` in the environment, as for other bars of `tqdm`, it shows nothing.

    Args:
        description: The work.
        total: Number of units, or None if unknown.
        unit: Name of the units of the rate.
        **kwargs: Passed on to `tqdm`.
    """

    # A thread that redraws bars would write the lines of a log twice.
    monitor_interval = 0

    def __init__(
        self, description: str, total: int | None = None, unit: str = "it", **kwargs: Any
    ) -> None:
        is_notebook = in_notebook()
        self._terminal = sys.stderr.isatty() or is_notebook
        if not self._terminal:
            kwargs = {"mininterval": _SECONDS, "maxinterval": _SECONDS} | kwargs
        if not self._terminal or is_notebook:
            kwargs = {"ncols": 100} | kwargs
        super().__init__(
            desc=description,
            total=total,
            unit=f" {unit}",
            file=sys.stderr,
            smoothing=0.1,
            miniters=1,
            disable=_is_silent(),
            **kwargs,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or writes it as a line."""
        if self._terminal:
            super().display(msg, pos)
        elif self.n or self.total == 0:
            self.fp.write(f"{msg or self}\n".lstrip("\n"))
            self.fp.flush()

    def make_room(self) -> None:
        """Leaves the line on a terminal to other output; the next update draws the bar again."""
        if self._terminal and not self.disable:
            self.clear()

    def close(self) -> None:
        """Closes the bar; in a log, writes its final state."""
        if self._terminal:
            super().close()
        elif not self.disable:
            self.disable = True
            self.display()
