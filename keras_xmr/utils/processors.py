"""Number of processors that this process may use, and work in as many threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import ceil
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

_CGROUPS = Path("/sys/fs/cgroup")


@cache
def processor_count() -> int:
    """Returns the number of processors, within the CPU affinity and the limit of a container."""
    limit = _quota(Path("/proc/self/cgroup"), _CGROUPS)
    count = _affinity()
    return count if limit is None else max(1, min(count, ceil(limit)))


def _affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # From Python 3.13 on.
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(membership: Path, root: Path) -> float | None:
    """Returns the processors that `cpu.max` of control groups (version 2) allows, if limited.

    Args:
        membership: File that names the group of this process, as `/proc/self/cgroup` does.
        root: Where the groups are mounted.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    group = next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")
    folders = [root / group, *(root / group).parents]
    limits = [_processors(f / "cpu.max") for f in folders if f.is_relative_to(root)]
    return min((limit for limit in limits if limit is not None), default=None)


def _processors(path: Path) -> float | None:
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # No such file, or "max": not limited.
        return None


def in_threads(work: Callable[[int], Result], count: int, step: int) -> list[Result]:
    """Calls `work` with 0, step, 2 step, ... below `count`, in as many threads as there are cores.

    The results are in this order. NumPy lets go of the interpreter while it computes and sorts, so
    that threads are enough.
    """
    numbers = range(0, count, step)
    if len(numbers) < 2:  # Starting threads takes longer than small work.
        return list(map(work, numbers))
    with ThreadPoolExecutor(processor_count()) as pool:
        return list(pool.map(work, numbers))
