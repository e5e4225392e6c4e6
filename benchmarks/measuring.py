"""What the benchmarks share: how something is measured beside what it is compared with.

A module of this folder with a function `rows(smoke)` is a part of the table that
`python benchmarks/table.py` writes. It yields a `Row` for each thing that it measures, and with
`smoke` it takes sizes at which it is done at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ONCE = False
"""Whether everything is done once, to see that it works."""

LEFT_OUT = "left out: "
"""Begins the line that a part prints in place of rows for which something is not there."""

_LONG = 4.0
"""Seconds after which nothing is repeated any more, once it was measured three times."""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        what: What is measured.
        size: At which size.
        seconds: The median.
        baseline: The median of what it is compared with, in the same run.
        against: What that is.
        memory: Bytes that come on top while it runs.
        baseline_memory: The same of what it is compared with.
        bound: Seconds below which it cannot come.
        bound_by: What bounds it.
        processor: Seconds of all its threads.
        baseline_processor: The same of what it is compared with.
        at_most: How many times its bound it may take, where that has a goal.
        at_least: How many times as fast as what it is compared with it must be.
        why: Why it falls short of that.
    """

    what: str
    size: str
    seconds: float
    baseline: float | None = None
    against: str = ""
    memory: float | None = None
    baseline_memory: float | None = None
    bound: float | None = None
    bound_by: str = ""
    processor: float | None = None
    baseline_processor: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """The speed compared with the reference, as a multiple."""
        return None if self.baseline is None else self.baseline / self.seconds

    @property
    def fraction(self) -> float | None:
        """The share of the possible speed that is reached."""
        return None if self.bound is None else self.bound / self.seconds

    @property
    def has_goal(self) -> bool:
        """Whether it has one."""
        return bool(self.at_most or self.at_least)

    @property
    def shortfall(self) -> str:
        """By how much it falls short of its goals, and why; empty where it does not."""
        short = []
        if self.at_most and self.fraction and 1 / self.fraction > self.at_most:
            short.append(
                f"takes {1 / self.fraction:.2g} times its bound by {self.bound_by}, and the goal "
                f"is {self.at_most:g}"
            )
        if self.at_least and self.ratio and self.ratio < self.at_least:
            short.append(
                f"is {self.ratio:.2g} times as fast as {self.against}, and the goal is "
                f"{self.at_least:g}"
            )
        return f"{self.what}: {'; '.join(short)}. {self.why}".strip() if short else ""


class Peak:
    """Largest resident memory while a block runs, in bytes above what it was at its begin.

    Attributes:
        seconds: How long the block took.
        cpu_seconds: Of all its threads.
    """

    def __enter__(self) -> Peak:
        with suppress(OSError, AttributeError):
            # What the last block freed shall not hide this one's.
            ctypes.CDLL(None).malloc_trim(0)
        self.begin = self.most = self._resident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        self._time, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._time
        self.cpu_seconds = time.process_time() - self._cpu
        self._ended.set()
        self._thread.join()

    @property
    def gigabytes(self) -> float:
        """The additional memory."""
        return self.bytes / 1e9

    @property
    def bytes(self) -> int:
        """The additional memory."""
        return self.most - self.begin

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, self._resident())
            if self._ended.wait(0.005):
                return

    @staticmethod
    def _resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()


def largest_resident(process: int | str = "self") -> int:
    """The most bytes that a process has had in memory so far."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@dataclass(frozen=True)
class Elsewhere:
    """Work of another process, which measures itself.

    Attributes:
        ask: Has it done, and returns the `seconds`, `cpu_seconds` and `bytes` of a `Peak`, and what
            it has `found`.
        found: What it has found the last time, if that is a list.
    """

    ask: Callable[[], Any]
    found: list[Any] = field(default_factory=list)


@contextmanager
def other_process(
    python: str, script: str, *arguments: str
) -> Iterator[tuple[Callable[[str], SimpleNamespace], SimpleNamespace]]:
    """Starts a script of this folder that calls `answer`.

    Args:
        python: The Python that runs it.
        script: Its name.
        *arguments: Of the script.

    Yields:
        A function that has a work of it done, by its name, and what it says of itself.
    """
    command, pipe = [python, str(ROOT / "benchmarks" / script), *arguments], subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as says,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=says, text=True) as process,
    ):
        asked, answers = process.stdin, process.stdout

        def hear() -> SimpleNamespace:
            if line := answers.readline():
                return SimpleNamespace(**json.loads(line))
            says.seek(0)
            raise RuntimeError(f"{script} {arguments[0]}: {says.read()[-2000:]}")

        def ask(work: str) -> SimpleNamespace:
            asked.write(f"{work}\n")
            asked.flush()
            return hear()

        try:
            yield ask, hear()
        finally:
            process.kill()


def answer(make: Callable[[], Mapping[str, Callable[[], Any]]], **about: Any) -> None:
    """Does works by the names that come in, one a line, and tells the measures of each.

    Args:
        make: Makes the works; what they print is not shown, and a list that one returns is told.
        **about: What is said first.
    """
    answers = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):
        works = make()
        print(json.dumps(about), file=answers, flush=True)
        for line in sys.stdin:
            with Peak() as peak:
                found = works[line.strip()]()
            told = {"seconds": peak.seconds, "cpu_seconds": peak.cpu_seconds, "bytes": peak.bytes}
            told["found"] = found if isinstance(found, list) else None
            told["whole"] = largest_resident()
            print(json.dumps(told), file=answers, flush=True)


def _measured(work: Callable[[], Any] | Elsewhere) -> Any:
    if isinstance(work, Elsewhere):
        told = work.ask()
        work.found[:] = told.found or []
        return told
    with Peak() as peak:
        work()
    return peak


def compare(
    what: str,
    size: str,
    ours: Callable[[], Any],
    baseline: Callable[[], Any] | Elsewhere | None = None,
    against: str = "",
    *,
    items: int = 1,
    baseline_items: int | None = None,
    bound: float | None = None,
    bound_by: str = "",
    repeats: int = 7,
    warm_up: bool = True,
) -> Row:
    """Measures two ways to one result in turns, so that other work on the machine meets both.

    Args:
        what: What is measured.
        size: At which size.
        ours: Does it, and has done it when it returns.
        baseline: Does it in the way that it is compared with.
        against: What way that is.
        items: The times are of one of so many.
        baseline_items: Where the baseline does not do all of them.
        bound: Seconds, of one of them too, below which it cannot come.
        bound_by: What bounds it.
        repeats: How often, fewer where it takes long.
        warm_up: Whether the first time, in which all is traced, does not count.
    """
    works = [ours] if baseline is None else [ours, baseline]
    repeats = 1 if ONCE else repeats
    if warm_up and not ONCE:
        for work in works:
            _measured(work)
    memory: list[int] = []
    times: list[list[float]] = [[] for _ in works]
    processor: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats):
        for number, work in enumerate(works):
            peak = _measured(work)
            times[number].append(peak.seconds)
            processor[number].append(peak.cpu_seconds)
            if not repeat:
                memory.append(peak.bytes)
        if repeat >= 2 and sum(map(sum, times)) > _LONG:
            break
        if sum(map(sum, times)) > 5 * _LONG:
            break
    counts = (items, baseline_items or items)
    found = [median(t) / count for t, count in zip(times, counts, strict=False)]
    busy = [median(t) / count for t, count in zip(processor, counts, strict=False)]
    return Row(
        *(what, size, found[0], found[1] if baseline else None, against),
        *(memory[0], memory[1] if baseline else None, bound, bound_by),
        *(busy[0], busy[1] if baseline else None),
    )


@lru_cache(maxsize=1)
def operations_a_second() -> float:
    """Operations a second of a large matrix product in float32, of which the best run counts."""
    import tensorflow as tf

    side = 64 if ONCE else 2048
    matrix = tf.random.stateless_uniform((side, side), (0, 0))
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        tf.linalg.matmul(matrix, matrix).numpy()
        times.append(time.perf_counter() - begin)
    return 2 * side**3 / min(times)


@lru_cache
def bytes_a_second(clock: Callable[[], float] = time.perf_counter) -> float:
    """Bytes a second that a copy of a large array reads and writes, of which the best counts.

    Args:
        clock: Tells the seconds: those of the wall, or `time.process_time` those of processors.
    """
    array = np.ones(2**10 if ONCE else 2**25, np.float32)
    other, times = np.empty_like(array), []
    for _ in range(6):
        begin = clock()
        np.copyto(other, array)
        times.append(clock() - begin)
    return 2 * array.nbytes / min(times)


def by_products(operations: float) -> dict[str, Any]:
    """The bound of so many operations in matrix products."""
    return {"bound": operations / operations_a_second(), "bound_by": "matrix products"}


def by_memory(size: float) -> dict[str, Any]:
    """The bound of so many bytes that are read or written."""
    return {"bound": size / bytes_a_second(), "bound_by": "memory bandwidth"}


COLUMNS = (
    *("what", "size", "ours", "plain", "plain / ours", "memory", "plain's memory"),
    *("of the bound", "plain is"),
)


def cells(row: Row) -> list[str]:
    """A row, readable."""
    return [
        row.what,
        row.size,
        _with_processor(row.seconds, row.processor),
        _with_processor(row.baseline, row.baseline_processor),
        "" if row.ratio is None else f"{row.ratio:.3g}",
        size_of(row.memory),
        size_of(row.baseline_memory),
        "" if row.fraction is None else f"{row.fraction:.2g} of {row.bound_by}",
        row.against,
    ]


def duration(seconds: float | None) -> str:
    """A time, readable."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.3g} {unit}" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{1e9 * seconds:.3g} ns"


def _with_processor(seconds: float | None, processor: float | None) -> str:
    return duration(seconds) + (f" ({duration(processor)})" if processor is not None else "")


def size_of(count: float | None) -> str:
    """A number of bytes, readable."""
    if count is None:
        return ""
    return f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def show(rows: Iterable[Row]) -> None:
    """Prints rows as they come."""
    for row in rows:
        told = dict(zip(COLUMNS, cells(row), strict=True))
        print(", ".join(f"{name} {value}" for name, value in told.items() if value), flush=True)
        if row.shortfall:
            print(f"    {row.shortfall}", flush=True)
