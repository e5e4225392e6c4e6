"""Verdicts on the claims of the papers from tracked tables."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from benchmark_modules import benchmark

study = benchmark("claims_of_tables", "studies")

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def table(study):
    return study.rows_of_table()


@pytest.mark.slow
def test_the_tables_of_the_docs_are_those_of_the_command(study, capsys, table):
    with (DOCS / "tables" / "claims.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == table
    study.main([])
    assert capsys.readouterr().out in (DOCS / "results" / "scenes.md").read_text("utf-8")


def verdicts(table, text):
    return {row[2]: row[3:6] for row in table if row[1] == text}


def test_two_seeds_of_a_method_that_varies_decide_nothing(table):
    found = verdicts(table, "the hardest negative is above NT-Xent")
    verdict, difference, detectable = found["RSUM by the truth"]
    assert verdict == "cannot tell"
    assert difference.startswith("-199.9 [-371.2, -28.6]")
    assert float(detectable) > 199.9


def test_a_family_with_one_seed_each_is_not_decided(table):
    for verdict, difference, _ in verdicts(table, "DAA raises ASP (SGR)").values():
        assert (verdict, difference) == ("seeds unknown", "(seeds: 1)")


def test_the_order_of_wang_is_reversed(table):
    text = "L_h matters more than L_d: without L_d there is more than without L_h"
    assert {cells[0] for cells in verdicts(table, text).values()} == {"no"}


def test_claims_of_one_training_keep_their_intervals(study, table):
    (verdict, difference, _) = verdicts(table, "match probability is above ELK")["i2t R-P"]
    assert (verdict, difference) == ("yes", "+2.2 [+2.0, +2.4] (seeds: 4, queries alone)")
    at = table[0].index("real photos")
    heads = [r for r in table if r[1] == "six sub-embeddings are above ten" and "annotated" in r[2]]
    assert heads[0][at] == "not testable"
