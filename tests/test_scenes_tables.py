"""Intervals of the tables of the scenes, and their figure."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_modules import benchmark

study = benchmark("scenes_tables", "studies")

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
def test_the_tables_of_the_docs_are_those_of_the_command(study):
    for table in ("truth", "annotated"):
        text = (DOCS / "tables" / f"scenes_methods_{table}.csv").read_text("utf-8")
        assert study.with_intervals(text, table) == text
    page = study.PAGE.read_text("utf-8")
    assert study.page_with_intervals(page) == page
    assert page.count("to 430.2 |") == 2


def test_two_seeds_have_student_s_interval_and_one_keeps_that_of_its_queries(study):
    found = study.intervals("truth")
    two, one = found["scenes_vsepp"], found["scenes_sgr"]
    assert two.high - two.value == pytest.approx(12.706 * 25.2 / 2**0.5, abs=0.1)
    assert (one.low, one.high) == (363.8, 383.5)


def test_a_former_interval_is_replaced(study):
    row = "scenes_vsepp,adapted: x,2,204 ± 25.2,172.3 to 236.6,-"
    assert study.with_intervals(row, "truth") == row.replace("172.3 to 236.6", "-22.6 to 430.2")
    page = f"| method | RSUM | {study.COLUMN} |\n| --- | ---: | ---: |\n"
    page += "| `scenes_vsepp` | 203.8 ± 25.2 | 172.3 to 236.6 |"
    assert study.page_with_intervals(page).endswith("| -22.6 to 430.2 |")


@pytest.mark.slow
def test_the_figure_has_the_methods_of_the_page(study, tmp_path):
    methods = study.methods_of_page(study.PAGE.read_text("utf-8"))
    assert methods[0] == "scenes_saf"
    assert methods[-1] == "scenes_vsepp"
    study.draw(methods[-3:], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
