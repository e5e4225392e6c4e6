"""Work on the rows of large matrices, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from data_pipelines.processors import processor_count


def in_threads(work: Callable[[int], None], count: int, step: int) -> None:
    """Calls `work` with 0, step, 2 step, ... below `count`, in as many threads as there are cores.

    NumPy lets go of the interpreter while it computes and sorts, so that threads are enough.
    """
    with ThreadPoolExecutor(processor_count()) as pool:
        for _ in pool.map(work, range(0, count, step)):
            pass
