"""Metrics where some pairs were not judged, against trec_eval and plain rankings."""

from __future__ import annotations

import ir_measures
import numpy as np
import oracles
import pytest
import scipy.sparse

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.metric_tables import glossary, measured_tables
from keras_xmr.judgements import GroundTruth, Judgements, as_judgements
from keras_xmr.metrics import (
    METRICS,
    ScoreMatrices,
    evaluate_scores,
    ndcg,
    recall,
)
from keras_xmr.metrics.query_metrics import build_metrics

SHAPE = (23, 31)


@pytest.fixture
def grades(random):
    """Grades from 0 to 3, of which some queries have none above 0."""
    grades = random.integers(0, 4, SHAPE) * (random.random(SHAPE) < 0.3)
    grades[4] = 0
    grades[:, 7] = 0
    return grades.astype(np.float32)


@pytest.fixture
def judged(random, grades):
    """The pairs that were judged; of query 5 only right ones, of query 6 none."""
    judged = (random.random(SHAPE) < 0.4) & (grades >= 0)
    judged[5], judged[6] = grades[5] > 0, False
    return judged


def partly(grades, judged):
    return Judgements(
        scipy.sparse.csr_array(np.where(judged, grades, 0)),
        judged=scipy.sparse.csr_array(judged),
    )


def trec_values(measures, scores, grades, judged):
    """Values of every query by trec_eval, by measure: of what was judged alone."""
    judged_pairs = [(q, c) for q, c in np.ndindex(scores.shape) if judged[q, c]]
    qrels = [ir_measures.Qrel(str(q), str(c), int(grades[q, c])) for q, c in judged_pairs]
    run = [ir_measures.ScoredDoc(str(q), str(c), float(scores[q, c])) for q, c in judged_pairs]
    found = {}
    for value in ir_measures.iter_calc([*map(ir_measures.parse_measure, measures)], qrels, run):
        found[str(value.measure), int(value.query_id)] = value.value
    return found


TREC = {
    "ndcg_10": "nDCG@10",
    "bpref": "Bpref",
    "r_precision": "Rprec",
    "recall_5": "Success@5",
    "precision_5": "P@5",
}


def test_metrics_of_condensed_lists_are_those_of_trec_eval(random, grades, judged):
    scores = random.normal(size=SHAPE)  # trec_eval breaks ties by name
    metrics = evaluate_scores(scores, partly(grades, judged), [5])
    for queries, s, g, j in (
        (metrics.image_to_text, scores, grades, judged),
        (metrics.text_to_image, scores.T, grades.T, judged.T),
    ):
        expected = trec_values(TREC.values(), s, g, j)
        for name, title in TREC.items():
            values = queries.values[name]
            for query in range(len(s)):
                if (j[query] & (g[query] > 0)).any():
                    assert values[query] == pytest.approx(expected[title, query]), name
                else:
                    assert np.isnan(values[query])


@pytest.mark.parametrize("everything", [True, False])
def test_every_query_equals_a_plain_ranking_of_what_was_judged(random, grades, judged, everything):
    scores = random.integers(0, 4, SHAPE)  # many ties, which count against the model
    judgements = partly(grades, judged)
    if everything:
        judgements, judged = Judgements(judgements.grades), np.ones(SHAPE, bool)
        grades = judgements.grades.toarray()
    metrics = evaluate_scores(scores, judgements, [5])
    assert ("bpref" in metrics.image_to_text.values) is not everything
    assert recall(scores, judgements).items() <= metrics.summary.items()
    for queries, s, g, j in (
        (metrics.image_to_text, scores, grades, judged),
        (metrics.text_to_image, scores.T, grades.T, judged.T),
    ):
        if not everything:
            np.testing.assert_array_equal(queries.judged, j.sum(axis=1))
        for query in range(len(s)):
            condensed = s[query][j[query]], g[query][j[query]]
            expected = oracles.query_metrics(*condensed) if condensed[1].any() else {}
            for name, values in queries.values.items():
                if expected:
                    np.testing.assert_allclose(values[query], expected[name], err_msg=name)
                else:
                    assert np.isnan(values[query])


def test_a_matrix_says_by_nan_what_was_not_judged(random, grades, judged):
    matrix = np.where(judged, grades, np.nan)
    found, expected = as_judgements(matrix, SHAPE), partly(grades, judged)
    np.testing.assert_array_equal(found.judged.toarray(), judged)
    np.testing.assert_array_equal(found.grades.toarray(), expected.grades.toarray())
    np.testing.assert_array_equal(found.image_query_mask, judged.any(axis=1))


def test_only_images_and_captions_that_were_judged_are_queries():
    pairs, owner = np.array([[0, 0], [0, 2], [1, 0]]), np.array([0, 0, 1, 1])
    judged = Judgements.from_grades(pairs, np.array([0, 2, 1]), (2, 4), fully_judged=False)
    found = judged.with_annotated(owner)
    # Caption 0 was judged wrong for its photo, and is annotated; caption 2 was not judged for its
    # own, and of captions 1 and 3 no pair was.
    np.testing.assert_array_equal(found.grades.toarray(), [[2, 0, 2, 0], [1, 0, 2, 0]])
    np.testing.assert_array_equal(found.judged.toarray(), [[1, 0, 1, 0], [1, 0, 1, 0]])
    np.testing.assert_array_equal(found.caption_query_mask, [True, False, True, False])
    t2i = evaluate_scores(np.zeros((2, 4)), found).text_to_image
    np.testing.assert_array_equal(np.isnan(t2i.values["bpref"]), [False, True, False, True])
    for some in (found.transpose().transpose(), found.select(np.arange(2), np.arange(4))):
        np.testing.assert_array_equal(some.judged.toarray(), found.judged.toarray())


def test_metrics_of_a_config_are_measured_by_all_judgements(random, grades, judged):
    ids = [list(map(str, range(count))) for count in SHAPE]
    owner = np.arange(SHAPE[1]) % SHAPE[0]
    truth = GroundTruth(*ids, owner, Judgements.from_pairs(owner, SHAPE[0]))
    truth.extra = {"crowd": partly(grades, judged)}
    scores = random.normal(size=SHAPE)
    (choice,) = load_config(
        find_config("csv_pcme"), ["evaluation.metrics=[{name: discounted_gain, k: 3}]"]
    ).evaluation.metrics
    known = set(METRICS)
    truth.measures = build_metrics([choice])
    evaluation = evaluate_split_scores("test", [("m", ScoreMatrices.of(scores))], truth)
    found, results = evaluation.matchers[0].measured, results_of(evaluation)
    assert set(METRICS) == known  # what one evaluation measures makes no other config valid
    chosen = results.select(metric="discounted_gain")
    assert glossary(chosen) == {"nDCG@3": "a metric that the config adds"}
    assert found.extra["crowd"].summary["i2t_discounted_gain"] == pytest.approx(
        ndcg(scores, truth.extra["crowd"], k=3)["i2t_ndcg_3"]
    )
    header = [h for table in measured_tables("test", results) for h in table.header]
    assert header.count("i2t\nnDCG@3") == 2


def test_shapes_must_fit(grades):
    with pytest.raises(ValueError, match="judged pairs of"):
        Judgements(scipy.sparse.csr_array(grades), judged=scipy.sparse.csr_array((2, 3)))
