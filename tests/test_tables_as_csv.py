"""Markdown tables as CSV files of the docs."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = "| a | b |\n| --- | ---: |\n| **x** | 1 \\| 2 |\n"


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("csv_tables", ROOT / "studies/tables_as_csv.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_becomes_csv(module, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"## One\n\n{TABLE}\nText.\n"))
    module.main([str(tmp_path / "out.csv")])
    assert (tmp_path / "out.csv").read_text() == "a,b\nx,1 | 2\n"


def test_several_tables_have_a_column_of_titles(module):
    text = f"**One**\n\n{TABLE}\n### Two\n\n{TABLE}"
    assert module.convert(text) == "table,a,b\nOne,x,1 | 2\nTwo,x,1 | 2\n"


def test_other_input_is_refused(module):
    with pytest.raises(SystemExit, match="no table"):
        module.convert("text")
    with pytest.raises(SystemExit, match="different headers"):
        module.convert(f"{TABLE}\n{TABLE.replace('a', 'c')}")
