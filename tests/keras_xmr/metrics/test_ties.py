"""Warnings of matchers that tie many pairs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from finished_runs import CAPTIONS, IMAGES, ground_truth, scores

from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores, tied_share
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.result_tables import verdict_line
from keras_xmr.metrics import ScoreMatrices


def saturated(share: float) -> np.ndarray:
    """Scores of which so many, evenly strewn, are at their lower bound."""
    found = scores(2.0, 0)
    return np.maximum(found, np.quantile(found, share))


def test_tied_pairs_are_counted(random):
    found = random.normal(size=(30, 40))
    assert tied_share(ScoreMatrices(found)) == 0
    assert tied_share(ScoreMatrices(np.zeros((30, 40)))) == 1
    tied = saturated(0.5)
    by_row = np.mean([[(row == s).sum() > 1 for s in row] for row in tied])
    by_column = np.mean([[(row == s).sum() > 1 for s in row] for row in tied.T])
    assert tied_share(ScoreMatrices(tied)) == pytest.approx(min(by_row, by_column))


def test_captions_that_stand_twice_are_not_the_fault_of_a_matcher(random):
    found = random.normal(size=(30, 20))
    assert tied_share(ScoreMatrices(np.repeat(found, 2, axis=1))) == 0


def test_a_matcher_that_saturates_is_named(caplog):
    truth = ground_truth()
    with caplog.at_level(logging.WARNING):
        found = evaluate_split_scores(
            "test",
            [("fine", ScoreMatrices(scores(2.0, 0))), ("coarse", ScoreMatrices(saturated(0.5)))],
            truth,
        )
    (record,) = [r for r in caplog.records if "ties" in r.getMessage()]
    assert "coarse ties 50 % of the pairs" in record.getMessage()
    results = results_of(found)
    assert "coarse ties 50 % of the pairs" in verdict_line(results)
    assert "fine ties" not in verdict_line(results)
    fine, coarse = results.select(metric="tied")
    assert fine.value == 0
    assert coarse.value == pytest.approx(0.5, abs=0.02)
    assert (found.images, found.captions) == (IMAGES, CAPTIONS)
