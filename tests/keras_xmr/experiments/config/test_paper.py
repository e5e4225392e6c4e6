"""Figures of a paper in a config, and ours beside them."""

from __future__ import annotations

from dataclasses import replace

import finished_runs
import numpy as np
import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.paper_section import ReportedResults
from keras_xmr.experiments.evaluation.split_evaluation import (
    EmbeddedSplit,
    Evaluation,
    MatcherEvaluation,
)
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.result_tables import reported_tables
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, all_metrics, measure, metric_names
from keras_xmr.reranking import FastReranking, measure_reranked
from keras_xmr.utils.errors import ConfigError

FIGURES = [
    {"values": {"i2t_recall_1": 44.2, "rsum": 370.1, "t2i_median_rank": 3, "i2t_pmrp": 34.1}},
    {"folds": True, "values": {"i2t_asp": 54.4, "i2t_recall_1": 68.8}},
    {"matcher": "elk", "values": {"t2i_recall_1": 12.0}},
    {"matcher": "kl", "values": {"t2i_recall_1": 13.0}},
    {"row": "PCME + FR", "reranker": "fast_reranking", "values": {"i2t_recall_1": 51.8}},
    {"split": "val", "values": {"i2t_recall_1": 99.0}},
]


class Sized(Evaluation):
    """An evaluation of as many images and captions as the paper has."""

    images = 1_000
    captions = 2_000


@pytest.fixture(scope="module")
def evaluation(paper):
    truth = finished_runs.ground_truth()
    matchers = []
    for seed, name in enumerate(("match_probability", "elk")):
        scores = finished_runs.scores(2.0, seed)
        measured = measure(scores, truth, folds=3)
        matchers.append(MatcherEvaluation(name, ScoreMatrices(scores), measured))
    again = measure_reranked(FastReranking(), matchers[0].scores, truth, 3)
    reranked = {"fast_reranking": {"match_probability": again}}
    return Sized("test", matchers, EmbeddedSplit({}, {}), truth, reranked=reranked, paper=paper)


@pytest.fixture(scope="module")
def paper():
    return ReportedResults(source="Somebody 2021, Table 3", row="PCME", figures=FIGURES)


@pytest.mark.slow
def test_tables_set_ours_beside_the_papers(evaluation):
    whole, folds, reranked = reported_tables(results_of(evaluation))
    assert whole.title == "test, compared with Somebody 2021, Table 3: PCME"
    assert whole.header[:5] == ["matcher", "i2t\nR@1", "RSUM", "t2i\nMedR", "i2t\nPMRP"]
    ours = evaluation.matchers[0].metrics.summary
    recall, rsum, rank = ours["i2t_recall_1"], ours["rsum"], ours["t2i_median_rank"]
    assert [row[:5] for row in whole.rows[:3]] == [
        ["match_probability: paper", "44.2", "370.1", "3.0", "34.1"],
        ["match_probability: ours", f"{100 * recall:.1f}", f"{rsum:.1f}", f"{rank:.1f}", "-"],
        [
            "match_probability: difference",
            f"{100 * recall - 44.2:+.1f}",
            f"{rsum - 370.1:+.1f}",
            f"{rank - 3:+.1f}",
            "-",
        ],
    ]
    elk = evaluation.matchers[1].metrics.summary["t2i_recall_1"]
    assert [row[0] for row in whole.rows[3:]] == [
        f"{name}: {kind}" for name in ("elk", "kl") for kind in ("paper", "ours", "difference")
    ]
    assert [row[5] for row in whole.rows[3:]] == [
        "12.0", f"{100 * elk:.1f}", f"{100 * elk - 12:+.1f}", "13.0", "-", "-",
    ]  # fmt: skip
    assert "mean over folds" in folds.title
    assert folds.rows[1][1:] == [
        f"{100 * evaluation.matchers[0].measured.folds[name]:.1f}"
        for name in ("i2t_asp", "i2t_recall_1")
    ]
    assert "transductive" in reranked.title
    assert "PCME + FR" in reranked.title
    again = evaluation.reranked["fast_reranking"]["match_probability"].metrics.summary[
        "i2t_recall_1"
    ]
    assert reranked.rows[1][1] == f"{100 * again:.1f}"


def test_only_a_split_of_the_papers_size_stands_beside_it(evaluation, paper):
    def tables(images):
        known = paper.model_copy(update={"images": images})
        return reported_tables(results_of(replace(evaluation, paper=known)))

    assert not any("comparable" in table.title for table in tables(1_000))
    for table in tables(5_000):
        assert "measured on 1,000 images, and a paper on 5,000)" in table.title


def test_all_that_is_measured_has_a_name_that_a_config_can_quote(evaluation):
    truth = finished_runs.ground_truth()
    truth.labels = [(i % 3, i % 5) for i in range(finished_runs.IMAGES)]
    measured = measure(evaluation.matchers[0].scores, truth, folds=3)
    assert set(measured.metrics.summary) <= set(metric_names())
    assert {"i2t_pmrp", "t2i_asp", "rsum"} <= set(measured.folds)


@pytest.mark.slow
def test_folds_have_all_metrics_of_a_split_alone(random):
    truth = finished_runs.ground_truth()
    truth.labels = [(i % 3, 3 + i % 2) for i in range(finished_runs.IMAGES)]
    scores = finished_runs.scores(1.0, 5)
    half = finished_runs.IMAGES // 2
    summaries = []
    for images in (np.arange(half), np.arange(half, 2 * half)):
        captions = np.flatnonzero(np.isin(finished_runs.OWNER, images))
        members = np.ix_(images, captions)
        alone = GroundTruth(
            [str(i) for i in images],
            [str(c) for c in captions],
            np.repeat(np.arange(half), 2),
            Judgements.from_pairs(np.repeat(np.arange(half), 2), half),
            labels=[truth.labels[i] for i in images],
            relevance=truth.relevance[members],
        )
        summaries.append(all_metrics(scores[members], alone).summary)
    folds = measure(scores, truth, folds=2).folds
    assert set(folds) == set(summaries[0])
    for name, value in folds.items():
        assert value == pytest.approx(np.mean([s[name] for s in summaries])), name


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ("{values: {i2t_recal_1: 3}}", "figures.*'i2t_recal_1'.*'i2t_recall_1'"),
        ("{values: {}}", "values.*at least 1"),
        ("{matcher: elkk, values: {rsum: 3}}", r"figures\.0\.matcher.*'elk'"),
        ("{reranker: fast_rerank, values: {rsum: 3}}", r"figures\.0\.reranker.*'fast_reranking'"),
        ("{split: tset, values: {rsum: 3}}", r"figures\.0\.split.*'test'"),
    ],
)
def test_mistakes_are_named(figures, says):
    with pytest.raises(ConfigError, match=says):
        load_config(
            find_config("scenes_pcme"), [f"paper={{source: X, row: Y, figures: [{figures}]}}"]
        )
