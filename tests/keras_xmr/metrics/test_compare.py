"""Comparing two systems by their scores."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from finished_runs import IMAGES, OWNER, scores

import keras_xmr
from keras_xmr.evaluation.reporting.table import Table
from keras_xmr.metrics import paired_bootstrap, retrieval


def test_what_is_better_is_found_and_what_is_not_is_not():
    good, fair = scores(3.0, 1), scores(1.5, 2)
    found = keras_xmr.compare(fair, good, OWNER, resamples=500)
    own = found.metrics["rsum"]
    assert own.values == pytest.approx(
        [retrieval(fair, OWNER)["rsum"], retrieval(good, OWNER)["rsum"]]
    )
    assert own.difference.value == pytest.approx(own.values[1] - own.values[0])
    assert 0 < own.difference.low < own.difference.value < own.difference.high
    assert own.p_holm < 0.05
    assert 0 < own.smallest_effect < own.difference.value
    same = keras_xmr.compare(good, good, OWNER, resamples=100)
    assert all(metric.difference.p_value == 1 for metric in same.metrics.values())


def test_it_is_the_paired_bootstrap_of_the_queries():
    good, fair = scores(3.0, 1), scores(1.5, 2)
    found = keras_xmr.compare(fair, good, OWNER, resamples=300).metrics["t2i_recall_1"]
    hits = [s.argmax(axis=0) == OWNER for s in (good, fair)]
    expected = paired_bootstrap(*(h.astype(float) for h in hits), OWNER, resamples=300)
    assert found.difference.value == pytest.approx(expected.value)
    assert found.difference.low == pytest.approx(expected.low)
    assert found.difference.high == pytest.approx(expected.high)


def test_seeds_make_an_interval_wider():
    good = [scores(3.0 + wide, seed) for seed, wide in enumerate((-1.0, 0.0, 1.0))]
    fair = [scores(1.5, seed) for seed in (4, 5)]
    found = keras_xmr.compare(fair, good, OWNER, resamples=300)
    alone = keras_xmr.compare(fair[0], good[1], OWNER, resamples=300)
    assert found.runs == (2, 3)

    def width(comparison):
        difference = comparison.metrics["rsum"].difference
        return difference.high - difference.low

    assert width(found) > 1.5 * width(alone)


def test_captions_with_several_right_images_need_to_say_whose_they_are():
    right = np.eye(IMAGES)[:, OWNER] + np.roll(np.eye(IMAGES)[:, OWNER], 1, axis=0)
    pair = scores(1.5, 1), scores(3.0, 2)
    together = keras_xmr.compare(*pair, right, image_ids=OWNER, resamples=300)
    alone = keras_xmr.compare(*pair, right, resamples=300)
    both = [found.metrics["t2i_recall_1"].difference for found in (together, alone)]
    assert both[0].value == both[1].value
    assert both[0].low != both[1].low


def test_what_does_not_fit_is_refused():
    with pytest.raises(keras_xmr.ArgumentError, match="the same images and captions"):
        keras_xmr.compare(scores(1.0, 1), scores(1.0, 1)[:, :-1], OWNER)
    for image_ids in (OWNER[:-1], OWNER / 1):
        with pytest.raises(keras_xmr.ArgumentError, match="image_ids is the row"):
            keras_xmr.compare(scores(1.0, 1), scores(1.0, 1), OWNER, image_ids=image_ids)
    for options, says in (
        ({"resamples": 0}, "resamples is a whole number from 1 on, not 0"),
        ({"resamples": 1.5}, "resamples is a whole number"),
        ({"seed": -1}, "seed is a whole number from 0 on, not -1"),
        ({"judgements": np.zeros((2, 2))}, "no pair is relevant"),
    ):
        with pytest.raises(keras_xmr.ArgumentError, match=says):
            keras_xmr.compare(np.eye(2), np.eye(2), **options)


def test_tables_for_papers():
    found = keras_xmr.compare(
        scores(1.5, 1), scores(3.0, 2), OWNER, names=("my_first", "my_second"), resamples=100
    )
    markdown = found.markdown().splitlines()
    assert markdown[0] == "### my_second minus my_first; runs: 1 and 1"
    assert markdown[2].startswith("| metric | my_first | my_second | difference | 95 % interval |")
    assert {line.count("|") for line in markdown[2:]} == {8}
    titles = [line.split(" | ")[0].strip("| ") for line in markdown[4:]]
    assert titles[:4] == ["i2t R@1", "i2t R@5", "i2t R@10", "i2t R-P"]
    latex = found.latex()
    assert r"my\_first & my\_second & difference & 95 \% interval" in latex
    assert latex.count(r"\\") == 2 * 5 + 1 + 1
    table = Table("of A & B", ["row", "x"], [["a_1", "-1.5"], ["b*|", "2 ± 0.1"]], {1: "-1.5"})
    assert r"\caption{of A \& B}" in table.latex()
    assert r"a\_1 & \textbf{$-$1.5} \\" in table.latex()
    assert r"b*| & 2 $\pm$ 0.1 \\" in table.latex()
    assert table.markdown().splitlines()[-2:] == [r"| a_1 | **-1.5** |", r"| b\*\| | 2 ± 0.1 |"]


def test_the_snippet_of_the_docs_runs(capsys):
    page = (Path(__file__).parents[3] / "docs" / "how_to" / "compare.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(block, "compare.md", "exec"), {})
    assert "second minus first; runs: 1 and 3" in capsys.readouterr().out
