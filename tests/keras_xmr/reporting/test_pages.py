"""What pages are made of."""

from __future__ import annotations

from keras_xmr.metrics import Table
from keras_xmr.reporting.pages import definitions, figure, gallery, joined

HOSTILE = '"><script>alert(1)</script>'


def test_rows_with_the_same_figures_are_one_with_all_names():
    rows = [["a", "1", "2"], ["b", "1", "3"], ["c", "1", "2"], ["chance", "0", "0"]]
    found = joined(Table("title", ["", "x", "y"], rows))
    assert found.rows == [["a, c", "1", "2"], ["b", "1", "3"], ["chance", "0", "0"]]
    assert (found.title, found.header) == ("title", ["", "x", "y"])


def test_all_text_is_escaped():
    parts = [figure(b"png", HOSTILE, HOSTILE), definitions({HOSTILE: HOSTILE})]
    assert "<script>" not in gallery(parts)
    assert "<figcaption>" not in figure(b"png", "name")
