"""Figures of the tables in README and docs/results are of tracked tables and ranks.

The numbers of a printed row are in one row of a CSV file in docs, in the recalls of one method by
its tracked ranks, or in one line of a file of figures, all rounded alike. `docs/results/birds.md`
and `benchmarks.md` are printed from their CSV files whole.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from benchmark_modules import benchmark

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies" / "results"
PAGES = [ROOT / "README.md", *(ROOT / "docs/results" / f"{n}.md" for n in ("flickr8k", "scenes"))]
PAGES += [
    ROOT / "docs/results" / f"{name}.md" for name in ("index", "own_photos", "rows", "search")
]

measuring = benchmark("measuring")


def numbers(text: str) -> set[str]:
    """The numbers of a row, without those in names of code and in links."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    return {found.replace(",", "") for found in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", plain)}


def printed_rows(page: Path) -> list[str]:
    """The rows of tables that have numbers, without their headings."""
    lines = page.read_text("utf-8").splitlines()
    table = [line.startswith("|") for line in lines] + [False]
    heading = [bool(line) and set(line) <= set("|-: ") for line in lines[1:]] + [False, False]
    return [
        line
        for line, inside, head in zip(lines, table, heading, strict=False)
        if inside and not head and numbers(line)
    ]


def recalls_of_ranks(path: Path) -> dict[str, set[str]]:
    """RSUM of each method and number of training photos, its deviation, and numbers of seeds."""
    runs = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, path.read_text("utf-8").splitlines()):
        size = re.search(r"-n(\d+)-", line.get("name", "")) or ["", ""]
        ranks = [np.array(side) for side in line["ranks"]]
        rsum = sum(100 * np.mean(side <= k) for side in ranks for k in (1, 5, 10))
        runs[line.get("method") or line["name"].partition("-n")[0]][size[1]].append(rsum)
    found = {}
    for method, sizes in runs.items():
        known = {str(len(values)) for values in sizes.values()} | set(sizes)
        for values in sizes.values():
            known |= {
                f"{np.mean(values):.1f}",
                f"{np.std(values, ddof=min(1, len(values) - 1)):.1f}",
            }
        found[method] = known
    return found


@pytest.fixture(scope="module")
def tracked() -> list[set[str]]:
    """The numbers that may stand in one row together."""
    rows, methods = [], defaultdict(set)
    for path in (ROOT / "docs").rglob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                rows.append(numbers(" | ".join(row)))
                if path.stem == "flickr8k_methods":
                    methods[row[0]] |= rows[-1]
    rows += methods.values()
    for name in ("flickr8k_methods", "flickr8k_curve", "flickr8k_equal_features", "later_methods"):
        rows += recalls_of_ranks(RESULTS / f"{name}.jsonl").values()
    for path in RESULTS.glob("flickr8k_people_*.jsonl"):
        for line in map(json.loads, path.read_text("utf-8").splitlines()):
            values = [line[name] for name in ("value", "low", "high") if line.get(name) is not None]
            for factor, digits in product((1, 100), (0, 1, 2, 3)):
                rows.append({f"{value * factor:.{digits}f}" for value in values})
    return rows


def test_rows_of_tables_are_of_tracked_results(tracked):
    untied = Counter()
    for page in PAGES:
        for row in printed_rows(page):
            # Without an interval a row of the papers has the numbers of their equations.
            is_ours = page.name != "rows.md" or "[" in row
            if is_ours and not any(numbers(row) <= known for known in tracked):
                untied[page.name] += 1
                print(page.name, row)
    assert untied == {}


def test_the_table_of_scenes_is_of_tracked_ranks():
    found = recalls_of_ranks(RESULTS / "scenes_methods.jsonl")
    with (ROOT / "docs/tables/scenes_methods.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["config"]: row["RSUM by the truth"] for row in csv.DictReader(file)}
    assert set(found) == {name for name in rows if name.startswith("scenes_")}
    assert all(numbers(rows[name]) <= known for name, known in found.items())


def test_intervals_in_sentences_are_of_tracked_results(tracked):
    pages = sorted((ROOT / "docs/results").glob("*.md"))
    # Tables of the other pages are compared with tracked results by their own tests.
    known = [*tracked, *(numbers(row) for page in pages for row in printed_rows(page))]
    untied = Counter()
    for page in (ROOT / "README.md", *pages):
        lines = page.read_text("utf-8").splitlines()
        prose = " ".join(line for line in lines if not line.startswith("|"))
        for found in re.findall(r"(\d+\.\d+) +\[[+-]?(\d+\.\d+), +[+-]?(\d+\.\d+)\]", prose):
            if not any(set(found) <= row for row in known):
                untied[page.name] += 1
                print(page.name, found)
    assert untied == {}


def test_a_figure_that_nobody_measured_is_found(tracked):
    (row,) = [row for row in printed_rows(ROOT / "README.md") if "| MSRM |" in row]
    assert any(numbers(row) <= known for known in tracked)
    assert not any(numbers(row.replace("348.8", "349.8")) <= known for known in tracked)


def test_the_page_of_benchmarks_is_that_of_its_table(measuring):
    folder = ROOT / "docs" / "results"
    found = measuring.kept(folder / "benchmarks.csv")
    assert measuring.page(found, {}) == (folder / "benchmarks.md").read_text("utf-8")
