"""Handling of SIGTERM, so that work ends with its state saved."""

from __future__ import annotations

import signal
import threading

from keras_xmr.utils.errors import UserError

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM has ended."""


class TerminatedError(UserError):
    """SIGTERM has ended the work; the message names the saved checkpoint."""


class TerminationNotice:
    """Records SIGTERM within a `with` block, so that the work can end in good order.

    Only the main thread receives signals; in any other it does nothing.

    Attributes:
        given: Whether the signal has come.
    """

    def __init__(self) -> None:
        self.given = False

    def __enter__(self) -> TerminationNotice:
        self._listens = threading.current_thread() is threading.main_thread()
        if self._listens:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._listens:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: object) -> None:
        self.given = True
