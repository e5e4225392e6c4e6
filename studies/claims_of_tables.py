"""Verdicts on the claims of the papers by present rules, from the tables of finished runs.

The runs on the scenes are not tracked; their means, standard deviations and numbers of seeds are
(docs/tables/scenes_methods_*.csv), and so are the differences with the intervals of that time,
whose seeds were resampled (studies/results/claims_former.csv). The variance over seeds is that of
the family of a method, and intervals are those of Student's t in a mixed model, as in
benchmarks/claims.py. The variance over queries lies between none and that of the former interval:
verdicts are given by both, one that differs is "cannot tell", and the wider interval is printed.
The claims of a paper are one family of tests. Where a method and all of its family have one seed,
nothing is decided. On photos claims about sets of embeddings are not testable: the heads began at
the solution of CCA, and their embeddings stayed identical.

    python studies/claims_of_tables.py --csv docs/tables/claims.csv    # prints the decided ones
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtri

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import claims
from paper_claims import ALPHA, BY, FROM_SCRATCH, Claim, config_on_scenes, title_of

from keras_xmr.metrics.bootstrap import Difference, Estimate, Seeds, holm

FORMER = Path(__file__).parent / "results" / "claims_former.csv"
COLUMNS = ("scenes", "real photos")
_TEXT = re.compile(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\] \((.*)\)")
_UNTESTED = "same model", "not run", "void", "not testable"
_SETS = "pvse", "dvse", "dive"
_IN_TABLES = {
    "truth_rsum": ("truth", "RSUM"),
    "rsum": ("annotated", "RSUM"),
    "i2t_r_precision": ("truth", "i2t R-P"),
    "t2i_r_precision": ("truth", "t2i R-P"),
    "i2t_asp": ("annotated", "i2t ASP"),
    "t2i_asp": ("annotated", "t2i ASP"),
    "i2t_recall_1": ("annotated", "i2t R@1"),
    "t2i_recall_1": ("annotated", "t2i R@1"),
}
_QUANTILES = ndtri((np.arange(2_000) + 0.5) / 2_000)


@dataclass(frozen=True)
class Row:
    """A claim and a metric in one column.

    Attributes:
        claim: The claim.
        metric: The metric.
        runs: The runs that it is about.
        ends: The estimate with no variance over queries and with that of the former interval; the
            same where it is known, and none where nothing tells what another seed changes.
    """

    claim: Claim
    metric: str
    runs: str
    ends: tuple[Estimate, Estimate] | None


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the decided claims on the scenes in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", type=Path, help="writes all claims")
    options = parser.parse_args(arguments)
    table = rows_of_table()
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)
    print("| paper | claim | metric | scenes | difference | detectable |")
    print("| --- | --- | --- | --- | ---: | ---: |")
    for paper, text, metric, verdict, *cells in table[1:]:
        if verdict.startswith(("yes", "no,", "not observed")) or verdict == "no":
            shown = verdict.replace("yes", "**yes**") if "yes" in verdict else f"**{verdict}**"
            print(f"| {' | '.join([paper, text, metric, shown, *cells[:2]])} |")
    places = [table[0].index(column) for column in COLUMNS]
    counts = [Counter(row[place] for row in table[1:]) for place in places]
    print(f"\n| verdicts | {' | '.join(COLUMNS)} |\n| --- | ---: | ---: |")
    for verdict in sorted(set().union(*counts), key=lambda v: (-counts[0][v], v)):
        print(f"| {verdict} | {' | '.join(str(count[verdict]) for count in counts)} |")
    print(f"| together | {' | '.join(str(count.total()) for count in counts)} |")


def rows_of_table() -> list[list[str]]:
    """The table of all claims, with a header."""
    with FORMER.open(encoding="utf-8", newline="") as file:
        former = {tuple(row[:3]): row[3:] for row in csv.reader(file)}
    header = ["table", "claim", "metric"]
    verdicts: dict[str, Mapping[tuple[Claim, str], list[str]]] = {}
    for number, column in enumerate(COLUMNS):
        header += [column, "difference", "detectable"]
        verdicts[column] = _column(former, column, 2 * number)
    rows = [header]
    for claim in claims.ALL:
        for metric in claim.metrics:
            cells = [verdicts[column].get((claim, metric)) for column in COLUMNS]
            if any(cells):
                known = [cell or ["not run", "", ""] for cell in cells]
                rows.append([claim.paper, claim.text, title_of(metric), *known[0], *known[1]])
    return rows


def _column(
    former: Mapping[tuple[str, ...], Sequence[str]], column: str, at: int
) -> dict[tuple[Claim, str], list[str]]:
    """Verdict, difference and detectable difference of each claim."""
    cells: dict[tuple[Claim, str], list[str]] = {}
    rows = []
    for claim in claims.ALL:
        for metric in claim.metrics:
            told = former.get((claim.paper, claim.text, title_of(metric)), ["", ""] * 2)
            verdict, text = told[at : at + 2]
            if verdict in _UNTESTED:
                cells[claim, metric] = [verdict, text, ""]
            elif (
                text
                and column != "scenes"
                and claim.left.startswith(_SETS)
                and BY not in claim.left
            ):
                cells[claim, metric] = ["not testable", "(embeddings stay identical)", ""]
            elif (row := _row(claim, metric, text, column)) is not None:
                rows.append(row)
    for paper in dict.fromkeys(row.claim.paper for row in rows):
        cells |= dict(_verdicts([row for row in rows if row.claim.paper == paper]))
    return cells


def _row(claim: Claim, metric: str, text: str, column: str) -> Row | None:
    sides = [side.partition(BY)[0] for side in (claim.left, claim.right) if side]
    configs = [config_on_scenes(side) for side in sides]
    match = _TEXT.match(text)
    if match:
        value, low, high = map(float, match.groups()[:3])
        runs, queries = match[4], ((high - low) / 2 / 1.96) ** 2
    elif column == "scenes" and metric in _IN_TABLES and all(_of(c, metric) for c in configs):
        # A claim that was not tested then: no interval, so the variance over queries is left out.
        (first, _, n), (second, _, m) = (_of(config, metric) for config in configs)
        value, queries = first - second, 0.0
        runs = f"seeds: {n}" if n == m else f"seeds: {n} and {m}"
    else:
        return None
    if column != "scenes":
        random = set(sides) & set(FROM_SCRATCH)
        known = None if random else (estimate(value, queries, ()),) * 2
        return Row(claim, metric, runs, known)
    if "queries alone" in runs:
        return Row(claim, metric, runs, (estimate(value, queries, ()),) * 2)
    if metric not in _IN_TABLES:
        # All of the former interval may be due to the seeds, which it underestimated.
        count = int(runs.removeprefix("seeds: "))
        seeds = (Seeds(queries * count / (count - 1), 0.0, count - 1.0),)
        return Row(claim, metric, runs, (estimate(value, 0.0, seeds),) * 2)
    found = _seeds(configs, metric)
    ends = found and tuple(estimate(value, q, found) for q in (0.0, queries))
    return Row(claim, metric, runs, ends or None)


def estimate(value: float, queries: float, seeds: tuple[Seeds, ...]) -> Estimate:
    """A figure with its variance over queries, and that over seeds."""
    return Estimate(value, value + queries**0.5 * _QUANTILES, seeds)


def _seeds(configs: Sequence[str], metric: str) -> tuple[Seeds, ...] | None:
    """The variance over seeds of a difference, by family; None where a family has one seed each."""
    found = []
    for family in dict.fromkeys(map(claims.family_of, configs)):
        members = [known for c in _claimed(family) if (known := _of(c, metric))]
        squares = sum(deviation**2 * (count - 1) for _, deviation, count in members)
        freedom = sum(count - 1 for *_, count in members)
        if not freedom:
            return None
        counts = [_of(c, metric)[2] for c in configs if claims.family_of(c) == family]
        found.append(claims.pooled_seeds(squares, freedom, sum(1 / count for count in counts)))
    return tuple(found)


def _claimed(family: str) -> list[str]:
    sides = [side.partition(BY)[0] for c in claims.ALL for side in (c.left, c.right)]
    configs = dict.fromkeys(config_on_scenes(side) for side in sides)
    return [config for config in configs if claims.family_of(config) == family]


def _of(config: str, metric: str) -> tuple[float, float, int] | None:
    """Mean, standard deviation and number of seeds of a method; None if it was not run."""
    table, column = _IN_TABLES[metric]
    row = TABLES[table].get(config)
    if row is None:
        return None
    mean, _, deviation = row[column].partition(" ± ")
    return float(mean), float(deviation or 0), int(row["runs"])


def _read(table: str) -> dict[str, dict[str, str]]:
    path = Path(__file__).parents[1] / "docs" / "tables" / f"scenes_methods_{table}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


TABLES = {table: _read(table) for table in ("truth", "annotated")}


def _verdicts(rows: Sequence[Row]) -> Iterator[tuple[tuple[Claim, str], list[str]]]:
    """The cells of the claims of a paper, which are one family of tests."""
    tested = [row for row in rows if row.ends is not None]
    by_end = [_of_end(tested, end) for end in (0, 1)]
    for row in rows:
        key = row.claim, row.metric
        if row.ends is None:
            yield key, ["seeds unknown", f"({row.runs})", ""]
            continue
        (first, d, detectable), (second, other, further) = (each[key] for each in by_end)
        wide = Difference(d.value, min(d.low, other.low), max(d.high, other.high), d.p_value)
        verdict = first if first == second else "cannot tell"
        text = f"{claims.difference_text(wide)} ({row.runs})"
        yield key, [verdict.replace("*", ""), text, claims.number_text(max(detectable, further))]


def _of_end(
    rows: Sequence[Row], end: int
) -> dict[tuple[Claim, str], tuple[str, Difference, float]]:
    """Verdict, difference and detectable difference, with one of both variances over queries."""
    estimates = {(row.claim, row.metric): row.ends[end] for row in rows if row.ends}
    bounds = [(key, bound) for key in estimates for bound in key[0].bounds(key[1])]
    raw = [estimates[key].above(bound).difference().p_value for key, bound in bounds]
    p_values: dict[tuple[Claim, str], tuple[float, ...]] = dict.fromkeys(estimates, ())
    for (key, _), p_value in zip(bounds, holm(raw), strict=True):
        p_values[key] += (float(p_value),)
    found = {}
    for key, estimate in estimates.items():
        difference, detectable = (
            estimate.difference(),
            estimate.smallest_effect(ALPHA / max(len(bounds), 1)),
        )
        verdict = key[0].verdict(key[1], difference, p_values[key], detectable)
        found[key] = verdict, difference, detectable
    return found


if __name__ == "__main__":
    main()
