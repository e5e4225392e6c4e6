"""Writes every table and picture of the result pages from the tracked raw results.

python studies/result_pages.py                  # all pages
python studies/result_pages.py methods_page     # one
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

sys.path.append(str(Path(__file__).parent))

ROOT = Path(__file__).parents[1]
PAGES = {
    "metrics_page": "what_metrics_reward.md",
    "hardest_page": "hardest_negatives.md",
    "hubs_tables": "hub_corrections.md",
    "methods_page": "methods.md",
    "sigma_page": "sigma.md",
}
"""Modules with `tables` and `draw`, and their pages in docs/results."""


def write(names: Sequence[str], docs: Path) -> None:
    """Writes tables to docs/tables, and pictures to docs/results."""
    for folder in ("tables", "results"):
        (docs / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        page = importlib.import_module(name)
        with threadpool_limits(1):  # Matrices are small: more threads wait for each other.
            tables = page.tables()
        for stem, rows in tables.items():
            with (docs / "tables" / f"{stem}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        page.draw(docs / "results")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *PAGES], help="pages")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args(arguments)
    write(options.names or list(PAGES), options.docs)


if __name__ == "__main__":
    main()
