"""The result pages: tables and pictures come from tracked results, and figures from the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmark_modules import benchmark

from studies import result_pages

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
measuring = benchmark("measuring")


def decimals(text: str) -> set[str]:
    """Numbers with a decimal point, outside of code and of the targets of links."""
    plain = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.S)
    return set(re.findall(r"\d+\.\d+", plain))


def linked(text: str) -> set[str]:
    """The decimals of all tables that a page links."""
    paths = re.findall(r"\]\((?:\.\./|docs/)?(tables/[\w.]+\.csv)\)", text)
    return set().union(*(decimals((DOCS / path).read_text("utf-8")) for path in paths))


@pytest.mark.slow
@pytest.mark.parametrize("name", result_pages.PAGES)
def test_tables_and_pictures_are_made_of_tracked_results(name, tmp_path):
    result_pages.write([name], tmp_path)
    tables = list(tmp_path.rglob("*.csv"))
    assert tables
    for path in tables:
        tracked = DOCS / path.relative_to(tmp_path)
        assert path.read_text("utf-8") == tracked.read_text("utf-8"), path.name
    text = (RESULTS / result_pages.PAGES[name]).read_text("utf-8")
    shown = set(re.findall(r"!\[[^\]]*\]\((\w+\.png)\)", text))
    assert shown
    assert shown <= {path.name for path in tmp_path.rglob("*.png")}
    assert f"python studies/result_pages.py {name}" in text


@pytest.mark.parametrize("page", result_pages.PAGES.values())
def test_figures_of_a_page_are_in_tables_that_it_links(page):
    text = (RESULTS / page).read_text("utf-8")
    assert decimals(text) - linked(text) == set()


def test_figures_of_the_first_pages_are_in_the_tables_of_the_result_pages():
    texts = [(RESULTS / page).read_text("utf-8") for page in result_pages.PAGES.values()]
    known = set().union(*map(linked, texts))
    assert decimals((RESULTS / "index.md").read_text("utf-8")) <= known
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    section = readme.partition("\n## Results\n")[2].partition("**Status**")[0]
    assert len(decimals(section)) > 5
    assert decimals(section) <= known


def test_a_figure_that_nobody_measured_is_found():
    text = (RESULTS / "methods.md").read_text("utf-8")
    assert decimals(text + " 987.65") - linked(text) == {"987.65"}


def test_a_page_begins_with_its_message_and_picture_and_ends_with_its_command():
    for page in result_pages.PAGES.values():
        lines = (RESULTS / page).read_text("utf-8").splitlines()
        assert lines[2].startswith("**"), page
        assert any(line.startswith("![") for line in lines[3:10]), page
        assert lines[-1] == "```", page


def test_verdicts_are_four_words():
    words = set()
    for path in (DOCS / "tables").glob("*_comparisons.csv"):
        words |= {line.rpartition(",")[2] for line in path.read_text("utf-8").splitlines()[1:]}
    assert words <= {"confirmed", "reversed", "not observed", "undecided"}
    assert len(words) >= 3


def test_the_page_of_speed_is_that_of_its_table(measuring):
    found = measuring.kept(RESULTS / "benchmarks.csv")
    assert measuring.page(found, {}) == (RESULTS / "speed.md").read_text("utf-8")
