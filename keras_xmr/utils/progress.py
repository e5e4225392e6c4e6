"""Progress bars with rates; plain lines without a terminal."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from keras_xmr.utils.notebooks import in_notebook
from keras_xmr.utils.waiting import is_silent

_SECONDS = 30.0
"""Seconds between two lines of a log file."""


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
            disable=is_silent(),
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
