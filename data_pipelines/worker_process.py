"""The start and end of a process of a pool. Imports no TensorFlow."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import Any

_stop: Any = None


def start_process(folder: str, stop: Any) -> None:
    """Initializes a process of a pool, before it imports TensorFlow.

    Args:
        folder: The current folder; paths of a config may be relative.
        stop: Event of `multiprocessing`, set when its work is no longer needed.
    """
    global _stop
    _stop = stop
    os.chdir(folder)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Images are decoded without a GPU.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which sets `stop`.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def is_stopped() -> bool:
    """Returns whether the work of this process of a pool is no longer needed."""
    return bool(_stop.is_set())


def _end_with_parent() -> None:
    """Ends this process when its parent was killed, for which `concurrent.futures` would wait."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
