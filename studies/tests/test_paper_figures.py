"""Figures of the papers, drawn from what runs have left."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "studies"))

import paper_figures

from keras_xmr.metrics.results import Results, rows_of
from keras_xmr.utils.errors import UserError


def run_of(base, name, recall, **objective):
    made = base / name
    evaluated = made / "evaluation" / "test"
    evaluated.mkdir(parents=True)
    config = {"name": name, "data": {"records": name}, "objective": [objective]}
    (made / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    metrics = {"i2t_recall_1": recall, "t2i_recall_1": recall / 2}
    key = {"split": "test", "judgements": "annotated", "matcher": "cosine"}
    Results(rows_of(metrics, **key)).write(evaluated / "results.csv")
    return str(made)


def test_a_grid_is_drawn_along_the_option_that_differs(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        paper_figures, "save_plot", lambda figure, path: drawn.append(figure.axes[0])
    )
    runs = [run_of(tmp_path, f"r{b}", 0.1 * b, beta=b, margin=0.2) for b in (3, 1, 2)]
    paper_figures.main(["grid", *runs, "--output", str(tmp_path / "grid.png")])
    (axis,) = drawn
    assert axis.get_xlabel() == "objective.0.beta"
    first, second = axis.lines
    assert list(first.get_xdata()) == [1, 2, 3]
    np.testing.assert_allclose(first.get_ydata(), [10, 20, 30])
    np.testing.assert_allclose(second.get_ydata(), [5, 10, 15])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1.0, "margin": 0.2}, "differ in no option"),
        ({"beta": 9.0, "margin": 0.7}, "differ in objective.0.beta, objective.0.margin"),
        ({"beta": "large", "margin": 0.2}, "has no number"),
    ],
)
def test_runs_that_are_no_grid_are_refused(tmp_path, options, message):
    runs = [run_of(tmp_path, "a", 0.1, beta=1.0, margin=0.2), run_of(tmp_path, "b", 0.2, **options)]
    with pytest.raises(UserError, match=message):
        paper_figures.main(["grid", *runs, "--output", str(tmp_path / "grid.png")])


def test_pairs_above_each_threshold_are_counted(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        paper_figures, "save_plot", lambda figure, path: drawn.append(figure.axes[0])
    )
    relevance = np.array([[1.0, 0.5, 0.2], [0.0, 0.4, 0.8]], np.float32)
    np.savez(tmp_path / "r.npz", relevance=relevance, image_of_caption=[0, 0, 1])
    paper_figures.main(["pairs", str(tmp_path / "r.npz"), "--output", str(tmp_path / "p.png")])
    every, annotated = drawn[0].lines
    at = list(np.round(every.get_xdata(), 2)).index(0.3)
    assert (every.get_ydata()[at], annotated.get_ydata()[at]) == (4, 3)
