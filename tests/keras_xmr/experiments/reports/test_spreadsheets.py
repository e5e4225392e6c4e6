"""Tables and pages that people open: what strangers wrote into them does nothing there."""

from __future__ import annotations

import csv
import io

import pytest

from keras_xmr.experiments.reports.comparison.comparison_report import _win_rows
from keras_xmr.experiments.reports.comparison.side_by_side import Win
from keras_xmr.experiments.reports.pages import render
from keras_xmr.utils.spreadsheets import to_csv

FORMULAS = ["=1+1", "+1-1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1"]


def cells(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))


@pytest.mark.parametrize("text", FORMULAS)
def test_text_does_not_run_as_a_formula(text):
    assert cells(to_csv([["a", text]])) == [["a", f"'{text}"]]


def test_numbers_and_plain_text_stay_as_they_are():
    row = ["-0.5", "+3", "-inf", -1.5, 2, "a dog = a pet", "", "'quoted'", "a,b\nc"]
    assert cells(to_csv([row])) == [[str(cell) for cell in row]]


def test_wins_hold_no_formula():
    win = Win("text_to_image", "pcme", "vse0", 3, "=image.jpg", "=cmd|'/C calc'!A0", (1.0, 2.0))
    (_, written) = cells(to_csv(_win_rows([win])))
    assert written[3:5] == ["'=image.jpg", "'=cmd|'/C calc'!A0"]


def test_pages_load_nothing():
    head = render("page.html", title="<script>").decode().partition("<title>")[0]
    assert "Content-Security-Policy" in head
    assert "default-src 'none'" in head
    assert "script-src" not in head
