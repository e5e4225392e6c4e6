"""Progress bars with rates, the same everywhere; plain lines where there is no terminal.

What has no rate is named on a terminal while it lasts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

_WAITING: list[str] = []
"""What is being waited for, the innermost last."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Names on a terminal what is being waited for, such as an import, and takes it away again.

    Also a decorator. Whatever else is written meanwhile stands in its place.

    Args:
        what: What is done, such as `loading TensorFlow`.
    """
    is_shown = sys.stderr.isatty() and not _is_silent()
    _WAITING.append(what)
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
    return os.environ.get("TQDM_DISABLE", "0") not in ("", "0")


class Progress(tqdm):
    """A `tqdm` bar on standard error.

    On a terminal it redraws itself. In a log file it writes a whole line every few seconds, so
    that the log can be read while the work goes on. Where the environment has `TQDM_DISABLE=1`, as
    for other bars of `tqdm`, it shows nothing.

    Args:
        description: What is being done.
        total: How many units there are, or None if that is not known.
        unit: What is counted, for the rate.
        **kwargs: Passed on to `tqdm`.
    """

    # A thread that redraws bars would write the lines of a log twice.
    monitor_interval = 0

    def __init__(
        self, description: str, total: int | None = None, unit: str = "it", **kwargs: Any
    ) -> None:
        self._terminal = sys.stderr.isatty()
        self._silent = _is_silent()
        self._closed = False
        if not self._terminal:
            kwargs = {"mininterval": 5.0, "maxinterval": 5.0, "ncols": 100} | kwargs
        super().__init__(
            desc=description,
            total=total,
            unit=f" {unit}",
            file=sys.stderr,
            smoothing=0.1,
            miniters=1,
            disable=self._silent,
            **kwargs,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or writes it as a line."""
        if self._silent:
            return
        if self._terminal:
            super().display(msg, pos)
        elif self.n or self.total == 0:
            self.fp.write(f"{msg or self}\n".lstrip("\n"))
            self.fp.flush()

    def close(self) -> None:
        """Ends the bar; in a log, writes how it stood at the end."""
        if self._terminal:
            super().close()
        elif not self._closed:
            self._closed = True
            self.display()
