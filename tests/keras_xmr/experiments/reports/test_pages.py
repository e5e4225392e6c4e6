"""What pages are made of."""

from __future__ import annotations

from markupsafe import Markup

from keras_xmr.experiments.reports.metric_tables import best_cell
from keras_xmr.experiments.reports.pages import TEMPLATES, joined, render
from keras_xmr.utils.tables import Table

PARTS = TEMPLATES.get_template("parts.html").module
HOSTILE = '"><script>alert(1)</script>'


def test_rows_with_the_same_figures_are_one_with_all_names():
    rows = [["a", "1", "2"], ["b", "1", "3"], ["c", "1", "2"], ["chance", "0", "0"]]
    found = joined(Table("title", ["", "x", "y"], rows))
    assert found.rows == [["a, c", "1", "2"], ["b", "1", "3"], ["chance", "0", "0"]]
    assert (found.title, found.header) == ("title", ["", "x", "y"])


def test_the_best_of_each_column_is_bold():
    measured = {"a": 0.5, "b": 0.25, "c": 0.5}
    assert best_cell("fraction", list(measured.values())) == "50.0"
    assert best_cell("rank", [2.0, 1.5]) == "1.5"
    assert best_cell("percent", [1.0001, 1.0002]) is None
    rows = [[name, f"{100 * value:.1f}"] for name, value in measured.items()]
    found = PARTS.table(Table("title", ["", "i2t\nR-P"], [*rows, ["chance", "1.0"]], {1: "50.0"}))
    assert "<th>i2t<br>R-P</th>" in found
    assert "<tr><td></td>" in found
    assert found.count("<b>50.0</b>") == found.count("<b>") == 2


def test_all_text_is_escaped():
    picture = {"title": HOSTILE, "see": HOSTILE, "url": HOSTILE}
    answers = [{"kind": "wrong", "text": HOSTILE}]
    models = [{"name": HOSTILE, "rank": 1.0, "answers": answers}]
    found = [
        PARTS.gallery([picture]),
        PARTS.definitions({HOSTILE: HOSTILE}),
        PARTS.table(Table(HOSTILE, [HOSTILE], [[HOSTILE]])),
        PARTS.folded(HOSTILE, caller=lambda: ""),
        PARTS.photo({"key": HOSTILE}),
        PARTS.duel({"text": HOSTILE, "photo": {"key": HOSTILE, "url": HOSTILE}, "models": models}),
    ]
    for part in found:
        assert "alert(1)" in part
        assert "<script>" not in part
    assert "<figcaption>" not in PARTS.gallery([{"title": "name", "url": ""}])


def test_a_page_follows_the_scheme_of_the_system():
    found = render("page.html", title="title").decode()
    assert "@media (prefers-color-scheme: dark)" in found
    assert "#fff;" not in found.partition("@media")[2], "a colour of the light scheme alone"


def test_what_is_folded_may_be_open():
    assert PARTS.folded("a & b", caller=lambda: Markup("<p>c</p>")) == (
        "<details><summary>a &amp; b</summary><p>c</p></details>"
    )
    opened = PARTS.folded("a", is_open=True, caller=lambda: "")
    assert opened.startswith("<details open><summary><h2>a</h2>")
    closed = PARTS.folded("a", is_open=False, caller=lambda: "")
    assert closed.startswith("<details><summary><h2>a</h2>")
