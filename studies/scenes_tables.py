"""Intervals of RSUM in the tables of the scenes by present rules, and the figure of the methods.

The runs on the scenes are not tracked; their means, standard deviations and numbers of seeds are
(docs/tables/scenes_methods_*.csv), and so are the intervals of that time, whose seeds were
resampled (studies/results/scenes_former_intervals.csv). The interval of several seeds is that of
Student's t in a mixed model, as `compare` prints it, with the variance over queries that makes it
the wider one: none, or all of that of the former interval. That of one seed is over queries
alone and stays. The figure has the methods of the first table of the page; its other metrics
have intervals over seeds alone. Printed is Kendall's tau of the order by annotated RSUM with
those by metrics of the exhaustive truth.

    python studies/scenes_tables.py --figure docs/results/comparison.png
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path

from claims_of_tables import TABLES, estimate
from scipy.stats import kendalltau

from keras_xmr.evaluation.comparison.plots import Bar, draw_bars
from keras_xmr.evaluation.reporting.pictures import save_plot
from keras_xmr.metrics.bootstrap import Difference, Seeds
from keras_xmr.utils.files import atomic_write

ROOT = Path(__file__).parents[1]
FORMER = Path(__file__).parent / "results" / "scenes_former_intervals.csv"
PAGE = ROOT / "docs" / "results" / "scenes.md"
COLUMN = "RSUM, 95 % interval"
PANELS = {f"{name} (%)": name for name in ("RSUM", "i2t R@1", "t2i R@1", "i2t R-P", "t2i R-P")}
SIGMA = "rank corr. of sigma"


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the intervals into the tables, and draws the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", type=Path, help="draws the methods")
    options = parser.parse_args(arguments)
    for table in TABLES:
        path = ROOT / "docs" / "tables" / f"scenes_methods_{table}.csv"
        atomic_write(path, with_intervals(path.read_text("utf-8"), table).encode())
    text = PAGE.read_text("utf-8")
    atomic_write(PAGE, page_with_intervals(text).encode())
    shown = methods_of_page(text)
    for methods in (shown, [method for method in TABLES["truth"] if method in TABLES["annotated"]]):
        print_agreement([method for method in methods if TABLES["truth"][method]["runs"]])
    if options.figure:
        draw(shown, options.figure)


def print_agreement(methods: Sequence[str]) -> None:
    """Prints Kendall's tau-b of orders of methods."""
    values = [_values(methods, "annotated", "RSUM")]
    values += [_values(methods, "truth", column) for column in ("RSUM", "i2t R-P", "t2i R-P")]
    tau = [f"{kendalltau(values[0], other).statistic:.2f}" for other in values[1:]]
    print(f"{len(methods)} methods, RSUM, i2t and t2i R-P: {', '.join(tau)}")


def _values(methods: Sequence[str], table: str, column: str) -> list[float]:
    return [float(TABLES[table][method][column].partition(" ")[0]) for method in methods]


def intervals(table: str) -> dict[str, Difference]:
    """The interval of RSUM of each method of a table."""
    found = {}
    with FORMER.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == table:
                low, high = float(row["low"]), float(row["high"])
                queries = ((high - low) / 2 / 1.96) ** 2
                cells = TABLES[table][row["method"]]
                ends = [_interval(cells, "RSUM", variance) for variance in (0.0, queries)]
                value = ends[0].value
                if int(cells["runs"]) == 1:
                    ends = [Difference(value, low, high, 0.0)]
                found[row["method"]] = max(ends, key=lambda end: end.high - end.low)
    return found


def with_intervals(text: str, table: str) -> str:
    """A table in CSV with the column of intervals as it is now."""
    for method, interval in intervals(table).items():
        former = rf"^({method},.*,)[^,]+( to )[^,]+(,-|,[+-]\d[^,]*|)$"
        text = re.sub(former, rf"\g<1>{_text(interval)}\g<3>", text, flags=re.M)
    return text


def page_with_intervals(text: str) -> str:
    """The page with the column of intervals as it is now: by the RSUM that is before it."""
    known = {
        (method, TABLES[table][method]["RSUM"]): _text(interval)
        for table in TABLES
        for method, interval in intervals(table).items()
    }
    lines, column = text.split("\n"), None
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split("|")]
        if COLUMN in cells:
            column = cells.index(COLUMN)
        elif not line.startswith("|"):
            column = None
        elif column and (interval := known.get((cells[1].strip("`"), cells[column - 1]))):
            cells[column] = interval
            lines[number] = " | ".join(cells).strip()
    return "\n".join(lines)


def methods_of_page(text: str) -> list[str]:
    """The methods of the first table of methods."""
    table = text.partition("Against the exhaustive truth:")[2].partition("All rows")[0]
    return re.findall(r"^\| `(\w+)`", table, re.M)


def draw(methods: Sequence[str], path: Path) -> None:
    """Draws metrics of methods by the exhaustive truth."""
    rows, rsum = TABLES["truth"], intervals("truth")
    panels = {
        title: {method: _bar(rows[method], column, rsum[method]) for method in methods}
        for title, column in PANELS.items()
    }
    panels["rank correlation of sigma"] = {
        method: _bar(rows[method], SIGMA) for method in methods if rows[method][SIGMA] != "-"
    }
    chance = {title: float(rows["chance"][column]) for title, column in PANELS.items()}
    save_plot(draw_bars(panels, methods, chance), path)


def _bar(cells: dict[str, str], column: str, rsum: Difference | None = None) -> Bar:
    found = rsum if rsum and column == "RSUM" else _interval(cells, column, 0.0)
    shown = cells[column].partition(" ± ")[0]
    return Bar(found.value, found.low, found.high, shown, cells["runs"] == "1")


def _interval(cells: dict[str, str], column: str, queries: float) -> Difference:
    """The interval of a cell such as 504.6 ± 3.0, with a variance over queries."""
    value, _, deviation = cells[column].partition(" ± ")
    runs = int(cells["runs"])
    seeds = (Seeds(float(deviation) ** 2 / runs, 0.0, runs - 1.0),) if deviation else ()
    return estimate(float(value), queries, seeds).difference()


def _text(interval: Difference) -> str:
    return f"{interval.low:.1f} to {interval.high:.1f}"


if __name__ == "__main__":
    main()
