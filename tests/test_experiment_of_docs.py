"""The notebook and the script of the docs train, evaluate and search."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import models
import pytest
from datasets import csv_photos
from graphs import eager

import keras_xmr
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.saved_model import _Endpoints
from keras_xmr.utils import notebooks

DOCS = Path(__file__).parents[1] / "docs"


def run_cells(path: Path) -> list[Any]:
    """Runs the code of a notebook, and returns the values that its cells show."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(path), "eval"), names))
    return [value for value in shown if value is not None]


@pytest.fixture
def uncompared(monkeypatch):
    """SavedModels are written, and compared with the model in export/test_saved_model.py alone."""
    monkeypatch.setattr(_Endpoints, "compare", lambda self, folder: None)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "uncompared")
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results, report, picture = run_cells(DOCS / "tutorials" / "notebook.ipynb")
    assert {row.direction for row in results} == {"image_to_text", "text_to_image"}
    assert "recall_10" in results._repr_html_()
    page = report._repr_html_()
    assert page.startswith('<iframe srcdoc="')
    assert page.count("<iframe") == 1
    assert "notebook" in page
    assert picture.size[0] == 5 * picture.size[1]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "uncompared")
def test_the_script_of_the_page_runs(tmp_path, monkeypatch, capsys):
    (script,) = re.findall(
        r"```python\n(.*?)```",
        (DOCS / "integrations" / "notebook.md").read_text("utf-8"),
        re.DOTALL,
    )
    monkeypatch.chdir(tmp_path)
    csv_photos(tmp_path / "my_photos")

    def small(config: str, changes: dict[str, Any]) -> Experiment:
        assert config == "csv_pretrained"
        source = {"name": "csv", "root": changes["data.source.root"], "splits": "splits.csv"}
        return Experiment(models.tiny_config(tmp_path, *models.POINTS, f"data.source={source}"))

    monkeypatch.setattr(keras_xmr, "Experiment", small, raising=False)
    with eager():
        exec(compile(script, "notebook.md", "exec"), {})
    printed = capsys.readouterr().out.strip().splitlines()[-1]
    best = ast.literal_eval(printed)
    assert len(set(best)) == 5
    assert all((tmp_path / path).is_file() for path in best)


def test_a_kernel_is_recognised_and_shows_messages_once(monkeypatch, capsys):
    assert not notebooks.in_notebook()
    shells = iter([SimpleNamespace(kernel=object()), SimpleNamespace(), None])
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: next(shells)))
    assert [notebooks.in_notebook() for _ in range(3)] == [True, False, False]


def test_a_page_is_framed_with_its_quotes():
    framed = notebooks.frame('<p class="a">&amp;</p>')
    assert 'srcdoc="&lt;p class=&quot;a&quot;&gt;&amp;amp;&lt;/p&gt;"' in framed
