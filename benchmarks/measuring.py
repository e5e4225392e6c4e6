"""How something is measured beside what it is compared with, and the table of all benchmarks.

A module of this folder with a function `rows(smoke)` is a part of the table in
docs/results/benchmarks.csv, whose first rows are in speed.md. It yields a `Row` for each thing
that it measures, and with `smoke` it takes sizes at which it is done at once. Each part runs in a
process of its own. One that fails, or takes too long, is named, and the others go on. Parts that
are named are measured anew, and the others stay as the table has them.

usage: python benchmarks/measuring.py [PART ...] [--minutes=8] [--output=docs/results] [--smoke]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import ctypes
import importlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
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
        most_seconds: How many seconds it may take.
        most_processor: How many seconds of processor time.
        most_memory: How many bytes.
        why: Why it falls short of a goal.
        others: The ratios of other machines, with spaces between.
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
    most_seconds: float | None = None
    most_processor: float | None = None
    most_memory: float | None = None
    why: str = ""
    others: str = ""

    @property
    def ratio(self) -> float | None:
        """The speed compared with the reference, as a multiple."""
        return None if self.baseline is None else self.baseline / self.seconds

    @property
    def ratios(self) -> str:
        """The ratio, or its range over several machines, readable."""
        if self.ratio is None:
            return ""
        found = sorted([self.ratio, *map(float, self.others.split())])
        return " to ".join(f"{ratio:.3g}" for ratio in (found[0], found[-1])[: len(found)])

    @property
    def fraction(self) -> float | None:
        """The share of the possible speed that is reached."""
        return None if self.bound is None else self.bound / self.seconds

    @property
    def goal(self) -> str:
        """Its goals, readable; empty without one."""
        goals = [duration(self.most_seconds), size_of(self.most_memory)]
        if self.most_processor:
            goals.append(f"{duration(self.most_processor)} of processor time")
        if self.at_most:
            goals.append(f"{self.at_most:g} times {self.bound_by}")
        if self.at_least:
            goals.append(f"{1 / self.at_least:.3g} times {self.against}")
        return ", ".join(filter(None, goals))

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
        for told, value, most in (
            (duration, self.seconds, self.most_seconds),
            (duration, self.processor, self.most_processor),
            (size_of, self.memory, self.most_memory),
        ):
            if most and value and value > most:
                short.append(f"takes {told(value)}, and the goal is {told(most)}")
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


@dataclass(frozen=True)
class Elsewhere:
    """Work of another process, which measures itself.

    Attributes:
        ask: Has it done, and returns the `seconds`, `cpu_seconds` and `bytes` of a `Peak`.
    """

    ask: Callable[[], Any]


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
        make: Makes the works; what they print is not shown.
        **about: What is said first.
    """
    answers = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):
        works = make()
        print(json.dumps(about), file=answers, flush=True)
        for line in sys.stdin:
            with Peak() as peak:
                works[line.strip()]()
            told = {"seconds": peak.seconds, "cpu_seconds": peak.cpu_seconds, "bytes": peak.bytes}
            print(json.dumps(told), file=answers, flush=True)


def _measured(work: Callable[[], Any] | Elsewhere) -> Any:
    if isinstance(work, Elsewhere):
        return work.ask()
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


@lru_cache(maxsize=1)
def bytes_a_second() -> float:
    """Bytes a second that a copy of a large array reads and writes, of which the best counts."""
    array = np.ones(2**10 if ONCE else 2**25, np.float32)
    other, times = np.empty_like(array), []
    for _ in range(6):
        begin = time.perf_counter()
        np.copyto(other, array)
        times.append(time.perf_counter() - begin)
    return 2 * array.nbytes / min(times)


def by_products(operations: float) -> dict[str, Any]:
    """The bound of so many operations in matrix products."""
    return {"bound": operations / operations_a_second(), "bound_by": "matrix products"}


def by_memory(size: float) -> dict[str, Any]:
    """The bound of so many bytes that are read or written."""
    return {"bound": size / bytes_a_second(), "bound_by": "memory bandwidth"}


COLUMNS = (
    *("what", "size", "ours", "baseline", "speed-up", "memory", "baseline's memory"),
    *("share of the bound", "baseline is"),
)


def cells(row: Row) -> list[str]:
    """A row, readable."""
    return [
        row.what,
        row.size,
        _with_processor(row.seconds, row.processor),
        _with_processor(row.baseline, row.baseline_processor),
        row.ratios,
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
        if row.goal:
            print(f"    goal: at most {row.goal}; {row.shortfall or 'met'}", flush=True)


HERE = ROOT / "benchmarks"
WITH_GOALS, WITHOUT = 5, 2
"""Numbers of rows per part on the page, with and without a goal; the CSV file has all."""
_MARK = "row: "

_INTRODUCTION = """\
# Speed

How fast each part of `keras_xmr` is, compared with other programs and with what the machine can do.
`make bench` writes the page; [benchmarks.csv](benchmarks.csv) has all rows. Machines have two
processors (x86_64) and no GPU. Times are medians, with the processor time of all threads in
brackets. Ours and the baseline alternate: trust ratios first.

* *baseline*: a released program, the shortest code for the same value, or the printed formula; the
  last column names it.
* *speed-up*: the time of the baseline divided by ours, or the range of this ratio over machines.
* *memory*: the peak of additional memory.
* *share of the bound*: our speed divided by the speed of large matrix products, of copies, or of
  work such as decoding, in the same run. More than 1 is possible.
* Rows that miss a goal (`at_least` and `most` in the CSV file) are named and shown first; `why` has
  the reason where it is known.

[Growth](../how_to/scale.md) has a million photos, and [its table](../tables/scale.csv) backends.
"""


def parts() -> list[str]:
    """The modules of this folder that have rows, by name."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        if any(isinstance(node, ast.FunctionDef) and node.name == "rows" for node in body):
            found.append(path.stem)
    return found


def about(part: str) -> list[str]:
    """The title of a part, the first sentence of its docstring; and the paragraph after it."""
    text = ast.get_docstring(ast.parse((HERE / f"{part}.py").read_text("utf-8"))) or part
    first, second, *_ = [*text.split("\n\n"), ""]
    return [first.replace("\n", " ").rstrip("."), "" if second.startswith("usage") else second]


def measured(part: str, smoke: bool, seconds: float) -> Iterator[Row]:
    """The rows of a part, as its process gives them.

    Raises:
        RuntimeError: If it fails, or takes longer than that many seconds.
    """
    command = [sys.executable, __file__, "--only", part, *(["--smoke"] if smoke else [])]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        says: list[str] = []
        reader = threading.Thread(target=lambda: says.extend(process.stderr or ()))
        reader.start()
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                if line.startswith(_MARK):
                    yield Row(**json.loads(line.removeprefix(_MARK)))
                elif line.startswith(LEFT_OUT):
                    print(f"   {line.strip()}", flush=True)
        finally:
            timer.cancel()
            process.wait()
            reader.join()
    if process.returncode < 0:
        raise RuntimeError(f"it was stopped after {seconds / 60:.0f} minutes")
    if process.returncode:
        raise RuntimeError(says[-1].strip() if says else "it failed")


def page(found: dict[str, list[Row]], failed: dict[str, str]) -> str:
    """Returns the page in docs/results/."""
    lines = [_INTRODUCTION]
    for part in parts():
        if not (rows := found.get(part)):
            continue
        heading, text = about(part)
        text += f" Command: `python benchmarks/measuring.py {part}`"
        paragraph = textwrap.fill(text.strip(), 136, break_on_hyphens=False)
        lines += [f"## {heading}", "", paragraph, ""]
        lines += ["| " + " | ".join(COLUMNS) + " |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
        goals = sorted((row for row in rows if row.goal), key=lambda row: not row.shortfall)
        shown = goals[:WITH_GOALS] + [row for row in rows if row not in goals][:WITHOUT]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in rows if row in shown]
        notes = [f"Not measured to its end: {failed[part]}"] if part in failed else []
        if more := len(rows) - len(shown):
            notes.append(f"{more} more rows are in [benchmarks.csv](benchmarks.csv).")
        if short := [row.what.partition(":")[0] for row in rows if row.shortfall]:
            names = "; ".join(dict.fromkeys(short))
            notes.append(f"Rows that miss their goal, {len(short)} of {len(rows)}: {names}.")
        lines += ["", " ".join(notes), ""] if notes else [""]
    return "\n".join(lines).rstrip() + "\n"


def table(found: dict[str, list[Row]]) -> str:
    """All rows as CSV, times in seconds and memory in bytes."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    names = [*Row.__dataclass_fields__, "ratio", "fraction"]
    writer.writerow(["part", *names])
    for part, rows in found.items():
        writer.writerows([part, *(getattr(row, name) for name in names)] for row in rows)
    return buffer.getvalue()


def kept(path: Path) -> dict[str, list[Row]]:
    """The rows that `table` has written to a file, by part; none if it is not there."""
    found: dict[str, list[Row]] = {}
    if not path.exists():
        return found
    words = ("what", "size", "against", "bound_by", "why", "others")
    for line in csv.DictReader(io.StringIO(path.read_text("utf-8"))):
        known = {name: line.get(name, "") for name in Row.__dataclass_fields__}
        values = {n: v if n in words else float(v) if v else None for n, v in known.items()}
        found.setdefault(line["part"], []).append(Row(**values))
    return found


def main() -> None:
    """Measures, and writes the page and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="of the table; all by default")
    parser.add_argument("--minutes", type=float, default=8, help="that one part may take")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        sys.modules["measuring"].ONCE = options.smoke
        for row in importlib.import_module(options.only).rows(options.smoke):
            print(_MARK + json.dumps(asdict(row)), flush=True)
        return
    from keras_xmr.utils.files import atomic_write

    begin, failed = time.perf_counter(), dict[str, str]()
    chosen, csv_file = options.parts or parts(), options.output / "benchmarks.csv"
    found = kept(csv_file)
    for number, part in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {about(part)[0]}", flush=True)
        # A part that needs what is not there has no rows, and those from before stay.
        rows: list[Row] = []
        known = {(r.what, r.size, r.against): r.others for r in found.get(part, ())}
        try:
            for row in measured(part, options.smoke, 60 * options.minutes):
                found[part] = rows
                rows.append(replace(row, others=known.get((row.what, row.size, row.against), "")))
                print("   " + ", ".join(filter(None, cells(row)[:5])), flush=True)
        except RuntimeError as error:
            failed[part] = str(error)
            print(f"   {error}", flush=True)
        # After each part: what was measured stays if the rest is stopped.
        atomic_write(options.output / "speed.md", page(found, failed).encode())
        atomic_write(csv_file, table(found).encode())
    minutes = (time.perf_counter() - begin) / 60
    print(f"{options.output / 'speed.md'} after {minutes:.1f} minutes")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    # Parts import this module by its name, which is not the one under which it is run.
    sys.modules["measuring"] = sys.modules["__main__"]
    main()
