"""Progress bars with rates, the same everywhere; plain lines where there is no terminal."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm


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
        self._silent = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
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
