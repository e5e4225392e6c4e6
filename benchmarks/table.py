"""Writes all benchmarks to docs/results/benchmarks.csv, and the first rows to benchmarks.md.

Every module of this folder that has a function `rows(smoke)` is a part of it (see
`measuring.py`), and runs in a process of its own. One that fails, or takes too long, is named, and
the others go on.

Parts that are named are measured anew, and the others stay as the table has them. The released
programs are beside ours where RELEASED and TORCH_PYTHON say where they are (`released.py`).

usage: python benchmarks/table.py [PART ...] [--minutes=8] [--output=docs/results] [--smoke]
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from io import StringIO
from pathlib import Path

import measuring
from measuring import COLUMNS, LEFT_OUT, ROOT, Row, bytes_a_second, cells, operations_a_second

from keras_xmr.utils.files import atomic_write

HERE = Path(__file__).parent
SHOWN = 4
"""Number of rows per part on the page, besides those with a goal; the CSV file has all."""
_MARK = "row: "

_INTRODUCTION = """\
# Benchmarks

`make bench` measured this on {machine}. It writes this page and all rows to
[benchmarks.csv](benchmarks.csv). Other work on the machine lengthens all times; compared variants
alternate in one run, so ratios hold where times do not. Times are medians.

* *plain* is a direct implementation of the formula of the paper, or the released program, named in
  the last column. *plain / ours* is the speed-up.
* In brackets: processor time, of all threads.
* *memory* is the peak of additional memory.
* *of the bound* is the share of the speed that the machine can reach, as measured in the same
  run: {operations:.0f} billion operations a second in products of large matrices, {bandwidth:.1f}
  GB a second in copies of a large array, or unavoidable work, such as decoding a photo.
"""


def parts() -> list[str]:
    """The modules of this folder that have rows, by name."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        body = ast.parse(path.read_text("utf-8")).body
        if any(isinstance(node, ast.FunctionDef) and node.name == "rows" for node in body):
            found.append(path.stem)
    return found


def title(part: str) -> str:
    """The title of a part: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((HERE / f"{part}.py").read_text("utf-8"))) or part
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".")


def about(part: str) -> list[str]:
    """The second paragraph of its docstring, if it is one of text."""
    text = ast.get_docstring(ast.parse((HERE / f"{part}.py").read_text("utf-8"))) or ""
    second = [*text.split("\n\n"), ""][1]
    return [] if second.startswith((" ", "usage")) or not second else [second, ""]


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
    lines = [
        _INTRODUCTION.format(
            machine=machine(),
            operations=operations_a_second() / 1e9,
            bandwidth=bytes_a_second() / 1e9,
        )
    ]
    for part, rows in found.items():
        lines += [f"## {title(part)}", "", *about(part), f"`python benchmarks/{part}.py`", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
        others = [row for row in rows if not row.has_goal]
        shown = [row for row in rows if row.has_goal or row in others[:SHOWN]]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in shown]
        if more := len(others[SHOWN:]):
            lines += ["", f"{more} more rows are in [benchmarks.csv](benchmarks.csv)."]
        if short := [f"* {row.shortfall}" for row in rows if row.shortfall]:
            lines += ["", "Short of its goal:", "", *short]
        lines += ["", f"Not measured to its end: {failed[part]}", ""] if part in failed else [""]
    return "\n".join(lines).rstrip() + "\n"


def machine() -> str:
    """A description of the machine."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("tensorflow", "numpy"))
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), Python "
        f"{platform.python_version()}, {versions}"
    )


def table(found: dict[str, list[Row]]) -> str:
    """All rows as CSV, times in seconds and memory in bytes."""
    buffer = StringIO()
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
    words = ("what", "size", "against", "bound_by", "why")
    for line in csv.DictReader(StringIO(path.read_text("utf-8"))):
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
    measuring.ONCE = options.smoke
    if options.only:
        for row in importlib.import_module(options.only).rows(options.smoke):
            print(_MARK + json.dumps(asdict(row)), flush=True)
        return
    begin, failed = time.perf_counter(), dict[str, str]()
    chosen, csv_file = options.parts or parts(), options.output / "benchmarks.csv"
    found = kept(csv_file)
    for number, part in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {title(part)}", flush=True)
        # A part that needs what is not there has no rows, and those from before stay.
        rows: list[Row] = []
        try:
            for row in measured(part, options.smoke, 60 * options.minutes):
                found[part] = rows
                rows.append(row)
                print("   " + ", ".join(filter(None, cells(row)[:5])), flush=True)
        except RuntimeError as error:
            failed[part] = str(error)
            print(f"   {error}", flush=True)
        # After each part: what was measured stays if the rest is stopped.
        found = {name: found[name] for name in parts() if name in found}
        atomic_write(options.output / "benchmarks.md", page(found, failed).encode())
        atomic_write(csv_file, table(found).encode())
    minutes = (time.perf_counter() - begin) / 60
    print(f"{options.output / 'benchmarks.md'} after {minutes:.1f} minutes")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
