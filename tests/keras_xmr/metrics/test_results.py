"""The long table of results, and the file of it."""

from __future__ import annotations

import csv
import math
import sys

import pytest

from keras_xmr.metrics import METRICS
from keras_xmr.metrics.names import Metric
from keras_xmr.metrics.results import Result, Results, rows_of
from keras_xmr.utils.errors import UserError

KEY = {"split": "test", "judgements": "annotated", "matcher": "cosine"}


@pytest.fixture
def results() -> Results:
    summary = {"i2t_recall_1": 1 / 3, "t2i_median_rank": 2.0, "rsum": 123.4, "t2i_lead": 0.1}
    lead = {"lead": Metric("lead", "=LEAD()")}
    rows = rows_of(summary, {"rsum": (100.0, 150.0)}, {"image_to_text": 7}, lead, **KEY)
    seeds = rows_of({"rsum": 99.0}, method='my, "best"\nmethod', seed=3, **KEY)
    return Results([*rows, *seeds])


def test_a_file_brings_back_all_rows_as_they_were(results, tmp_path):
    path = tmp_path / "results.csv"
    results.write(path)
    again = Results.read(path)
    assert again == results
    assert again[0].value == 1 / 3  # To the last digit.
    assert math.isnan(again[0].low)
    assert [row.seed for row in again] == [None] * 4 + [3]
    # A spreadsheet runs no title, and another program reads the cells by their names.
    with path.open(newline="", encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert cells[3]["title"] == "'=LEAD()"
    assert (cells[0]["direction"], cells[0]["metric"]) == ("image_to_text", "recall_1")
    assert (cells[2]["direction"], cells[2]["unit"], cells[2]["low"]) == ("", "percent", "100.0")


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_a_part_of_a_file_is_refused(results, tmp_path, cut):
    path = tmp_path / "results.csv"
    results.write(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ValueError, match=r"results|cells|CSV|convert"):
        Results.read(path)


def test_rows_are_chosen_by_their_values(results):
    assert results.select(metric="rsum", seed=None)[0].value == 123.4
    assert len(results.select(metric=["rsum", "recall_1"])) == 3
    assert not results.select(split="val")
    assert results.distinct("unit") == ["fraction", "rank", "percent"]
    assert results.select(seed=None).summary() == {
        "i2t_recall_1": 1 / 3,
        "t2i_median_rank": 2.0,
        "rsum": 123.4,
        "t2i_lead": 0.1,
    }
    assert results[0].n == 7
    assert results[:2] + results[2:] == results
    assert results.replace(split="val").distinct("split") == ["val"]
    with pytest.raises(AttributeError):
        results.select(colour="red")


def test_titles_and_units_are_those_of_the_metrics():
    rows = {row.metric: row for row in rows_of(dict.fromkeys((f"i2t_{m}" for m in METRICS), 0.5))}
    assert {name: row.unit for name, row in rows.items()} == {
        name: metric.unit for name, metric in METRICS.items()
    }
    assert not any("\n" in row.title for row in rows.values())


def test_a_notebook_shows_the_columns_that_say_something(results):
    page = results._repr_html_()
    assert page.count("<tr>") == 1 + len(results)
    assert "<th>value</th>" in page
    assert "<th>p_holm</th>" not in page
    assert "my, &quot;best&quot;" in page


def test_a_data_frame_needs_pandas(results, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = results.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(Result._fields)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        results.to_frame()
