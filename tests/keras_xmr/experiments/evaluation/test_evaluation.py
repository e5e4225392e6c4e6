"""Embedding, scoring in tiles, uncertainty, and the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import datasets
import models
import numpy as np
import pytest
from tiny_runs import copy_of, evaluated, in_memory, sharing

from data_pipelines.records import Records
from data_pipelines.shards import RecordsError
from keras_xmr import matchers
from keras_xmr.experiments.config.evaluation_section import LabelFiles
from keras_xmr.experiments.evaluation.evaluate import evaluate_split, labels_of_files
from keras_xmr.experiments.evaluation.external_scores import ExternalScores
from keras_xmr.experiments.evaluation.external_scores import run as run_external_scores
from keras_xmr.experiments.evaluation.score_curves import set_correlation, set_similarity
from keras_xmr.experiments.evaluation.scoring import MatcherScores
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.evaluation.uncertainty.assessment import bins, rank_correlation
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.reports.result_tables import result_tables
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics.results import Results
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.tables import table

PICTURES = {
    "recall",
    "positives",
    "risk_coverage_image",
    "risk_coverage_caption",
    "sigma_bins_image",
    "sigma_bins_caption",
    "reliability_all_pairs",
    "reliability_first_caption",
    "reliability_first_image",
    "sigma_damage_image",
    "sigma_damage_caption",
    "sigma_words",
    "attention",
    "plausible_matches",
    "relevance_rank_i2t",
    "relevance_rank_t2i",
    "set_algebra",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained):
    overrides = (
        "evaluation.folds=3",
        "evaluation.matchers=[mean_only, elk, wasserstein]",
        "evaluation.save_scores=true",
        "evaluation.report_card=true",
    )
    return sharing(copy_of(trained, tmp_path_factory.mktemp("run"), *overrides), trained)


@pytest.fixture(scope="module")
def done(run):
    """An evaluation and what was printed; its reports lie in the folder of the run."""
    return evaluated(run)


@pytest.fixture
def evaluation(done):
    return done[0]


@pytest.fixture
def gaussians(random):
    return models.gaussians(random, 5), models.gaussians(random, 7)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "matcher",
    [
        matchers.MatchProbability(),
        matchers.JensenShannon(),
        matchers.MahalanobisCosine(),
    ],
    ids=lambda matcher: type(matcher).__name__,
)
def test_scores_do_not_depend_on_the_tile(gaussians, matcher):
    whole = np.asarray(MatcherScores(matcher, *gaussians, tile=(100, 100)))
    assert whole.shape == (5, 7)
    for tile in ((4, 5), (3, 7)):
        np.testing.assert_allclose(
            np.asarray(MatcherScores(matcher, *gaussians, tile=tile)), whole, rtol=1e-4, atol=1e-4
        )


@pytest.mark.usefixtures("eager")
def test_nearer_is_always_a_higher_score():
    image = {"mean": np.zeros((1, 2), np.float32), "log_variance": np.zeros((1, 2), np.float32)}
    caption = {
        "mean": np.array([[0.1, 0.0], [1.0, 0.5], [4.0, 3.0]], np.float32),
        "log_variance": np.full((3, 2), 0.2, np.float32),
    }
    for name in (
        *("MatchProbability", "MeanOnly", "AverageL2", "ELK", "KL", "ReverseKL", "SymmetricKL"),
        *("Wasserstein", "Bhattacharyya", "ClosedFormSampled", "Mahalanobis"),
    ):
        scores = np.asarray(MatcherScores(getattr(matchers, name)(), image, caption, (10, 10)))[0]
        assert scores[0] > scores[1] > scores[2], name


@pytest.mark.slow
def test_evaluation_covers_matchers_folds_and_truth(run, evaluation):
    names = [m.name for m in evaluation.matchers]
    assert names == ["match_probability", "mean_only", "elk", "wasserstein"]
    assert evaluation.truth is not None
    for matcher in evaluation.matchers:
        assert matcher.scores.shape == (12, 24)
        # Every annotated answer is true, so there are more of the true ones.
        assert matcher.truth.summary["t2i_recall_10"] >= matcher.metrics.summary["t2i_recall_10"]
        assert matcher.measured.folds["t2i_mean_rank"] <= 4
    trained = run.retriever.matcher
    assert float(trained.scale.numpy()) != 20.0
    mean_only = evaluation.matchers[1].scores.image_to_text
    image, caption = evaluation.embedded.images["mean"], evaluation.embedded.captions["mean"]
    distance = np.linalg.norm(image[:, None] - caption[None], axis=-1)
    expected = float(trained.shift.numpy()) - float(trained.scale.numpy()) * distance
    np.testing.assert_allclose(mean_only, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_evaluating_twice_gives_the_same(run, evaluation):
    again = evaluate_split(run.retriever, run.records, "test", run.tokenizer, run.config)
    found, expected = (results_of(one).select(method="model") for one in (again, evaluation))
    assert found == expected


@pytest.mark.slow
def test_report_has_figures_plots_and_pictures(run, done):
    for text in (
        "exhaustive truth",
        "mean over folds",
        "match_probability",
        "rank correlation",
        "R@10",
    ):
        assert text in done[1]
    folder = run.folder.evaluation("test")
    results = Results.read(folder / "results.csv")
    by_truth = results.select(matcher="elk", judgements="truth", queries="all").summary()
    assert 0 <= by_truth["t2i_map_at_r"] <= 1
    assert -1 <= results.select(metric="uncertainty_of_truth")[0].value <= 1
    queries = np.load(folder / "queries-test.npz")
    assert queries["match_probability/t2i_recall_1"].shape == (24,)
    assert queries["match_probability/truth/i2t_map_at_r"].shape == queries["image_ids"].shape
    page = (folder / "report.html").read_text("utf-8")
    assert page.count("data:image/png") == page.count("<figcaption>") == len(PICTURES)
    assert page.count("data:image/jpeg") > 10
    assert 'class="true"' in page or 'class="right"' in page
    assert {p.stem for p in folder.glob("*.png")} == PICTURES
    assert {p.stem for p in folder.glob("*.csv")} >= PICTURES
    assert "sigma of captions, 70 % dropped" in (folder / "report_card.csv").read_text("utf-8")
    for word in ("<dt>R@K</dt>", "<dt>t2i</dt>", "<dt>AURC</dt>", "<dt>wasserstein</dt>"):
        assert word in page
    # A sentence for everyone comes first, then photos. Tables and all metrics are folded, and so
    # is uncertainty that is not informative.
    begins = [
        "Run scenes_pcme (adapted), test split: ",
        "Given a caption, the model puts a labelled photo first in",
        "Captions and the images retrieved",
        "Given a photo, the model puts a labelled caption first in",
        "<h2>The worst queries</h2>",
        "Images and the captions retrieved",
        "<details><summary><h2>For researchers",
        "Changed from the packaged config: model.dimension 8",
        "<h2>Uncertainty",
        "<details><summary><h2>All metrics",
        "annotated pairs</h2>",
        "<details><summary><h2>Pictures",
    ]
    places = [page.index(text) for text in begins]
    assert places == sorted(places)
    tells = any(row.high < 0 for row in results.select(metric="uncertainty_correlation"))
    assert ("<details open>" in page) == tells
    assert ("<h2>Uncertainty (not informative" in page) != tells


def scored_again(run, **options):
    """The evaluation of the scores that a run has saved, and its figures by its own matcher."""
    folder = run.folder.evaluation("test")
    files = folder / "ground-truth-test.json", folder / "scores-test.npy"
    own = ExternalScores(files[0], scores=files[1], **options)
    results = Results.read(folder / "results.csv").select(method="model", reranker="", minus="")
    own_results = results.select(matcher=results[0].matcher)
    return run_external_scores(own).measured["scores"], own_results


@pytest.mark.usefixtures("done")
def test_saved_scores_give_the_same_numbers(run):
    folder = run.folder.evaluation("test")
    truth = [str(run.records.folder / "test-truth.npz")]
    found, expected = scored_again(run, judgements=truth, folds=3)
    whole = expected.select(queries="all")
    assert found.metrics.summary == whole.select(judgements="annotated").summary()
    assert found.folds == expected.select(queries="mean over folds").summary()
    assert found.extra["test-truth"].summary == whole.select(judgements="truth").summary()
    queries = Path("evaluation", "test", "queries-test.npz")
    (again,) = folder.glob(f"*-evaluation/{queries}")
    mine, theirs = np.load(again), np.load(folder / queries.name)
    for name in mine:
        if name == "results_sha256":
            continue
        if name.endswith("_ids"):
            np.testing.assert_array_equal(mine[name], theirs[name])
        elif "test-truth" not in name:
            other = name.replace("scores/", "match_probability/")
            np.testing.assert_array_equal(mine[name], theirs[other])


@pytest.mark.slow
def test_a_damaged_record_is_named(run, tmp_path):
    copy = shutil.copytree(run.records.folder, tmp_path / "damaged")
    split = Records.open(copy).split("test")
    content = bytearray(split.shards[-1].read_bytes())
    content[-40] ^= 1
    split.shards[-1].write_bytes(content)
    with pytest.raises(RecordsError, match=r"test-\d+.tfrecord is damaged in the record of"):
        embed_split(run.retriever, split, run.tokenizer, run.config)


@pytest.mark.slow
@pytest.mark.usefixtures("eager", "undrawn")
def test_label_vectors_give_plausible_matches(tmp_path):
    section = datasets.coco(tmp_path / "coco")
    judged = tmp_path / "judged.csv"
    overrides = (
        f"data.source={section}".replace("'", '"'),
        "evaluation.save_scores=true",
        f"evaluation.judgements=['{judged}']",
        *models.POINTS,
    )
    judged.write_text("image,caption\n9,1003\n")
    run = Experiment(models.tiny_config(tmp_path, *overrides))
    run.prepare()
    records = run.records.split("test")
    key = records.captions[0].key
    judged.write_text(f"image,caption\n{records.image_keys[-1]},{key}\n")
    in_memory(run)
    run.evaluate()
    found, expected = scored_again(run)
    summary = expected.select(queries="all", judgements="annotated").summary()
    assert found.metrics.summary == summary
    assert summary["i2t_pmrp"] == 1  # All images have the same labels.
    with np.load(run.folder.queries("test")) as queries:
        assert queries["cosine/judged/t2i_positives"].sum() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("eager", "undrawn")
def test_classes_make_every_caption_of_a_class_right(tmp_path):
    section = datasets.cub(tmp_path / "cub")
    run = Experiment(
        models.tiny_config(
            tmp_path,
            f"data.source={{name: cub, root: {section['root']}, held_out_share: 0.3}}",
            "data.judgements=classes",
            "model.image.head=point",
            "model.text.head=point",
            "model.matcher=mean_only",
            "objective=[{name: soft_contrastive, reduction: mean}]",
            "evaluation.matchers=[cosine]",
            "evaluation.save_scores=true",
        )
    )
    run.prepare()
    in_memory(run)
    run.evaluate()
    found, expected = scored_again(run)
    summary = expected.select(queries="all", judgements="annotated").summary()
    assert found.metrics.summary == summary
    assert summary["i2t_recall_1"] == 1
    assert expected.distinct("judgements") == ["annotated", ""]
    results = Results.read(run.folder.results("test"))
    assert not results.select(metric="uncertainty_correlation")
    with np.load(run.folder.queries("test")) as queries:
        np.testing.assert_array_equal(queries["mean_only/t2i_positives"], 6)
        np.testing.assert_array_equal(queries["mean_only/i2t_positives"], 60)


def test_tables_are_in_percent_and_narrow(evaluation):
    tables = result_tables(results_of(evaluation))
    for result in tables:
        assert max(len(line) for line in str(result).splitlines()) <= 120
    recall = evaluation.matchers[0].metrics.summary["t2i_recall_10"]
    assert f"{100 * recall:.1f}" in tables[0].rows[0]
    text = table(["", "a\nlong"], [["x", "1"], ["yy", "22"]])
    assert text == "       a\n    long\n--  ----\nx      1\nyy    22"
    wide = table(["", "犬"], [["犬.jpg", "1"], ["u\u0308.jpg", "犬犬"]])
    assert table(["a"], [["\x1b[31mred\n.jpg"]]) == "a\n-------------\n?[31mred?.jpg"
    assert wide == "          犬\n------  ----\n犬.jpg     1\nu\u0308.jpg   犬犬"


def test_bins_are_sorted_and_of_equal_size(random):
    uncertainty = random.normal(size=103)
    metric = (random.random(103) > 0.5).astype(float)
    metric[5] = np.nan
    found = bins(uncertainty, metric)
    assert len(found.value) == 10
    assert (np.diff(found.log_sigma) > 0).all()
    known = np.delete(metric, 5)
    np.testing.assert_allclose(np.mean(found.value), known.mean(), atol=0.02)
    assert rank_correlation(np.zeros(5), np.arange(5)) == 0
    assert rank_correlation(np.arange(5), np.arange(5) ** 3) == pytest.approx(1)


def test_set_similarity_is_the_mean_cosine_of_different_members(random):
    points = random.normal(size=(5, 3, 4)).astype(np.float32)
    unit = points / np.linalg.norm(points, axis=2, keepdims=True)
    cosines = np.mean([own @ own.T for own in unit], axis=0)
    np.testing.assert_allclose(set_correlation(points), cosines, atol=1e-6)
    different = np.mean(cosines[~np.eye(3, dtype=bool)])
    assert set_similarity({"points": points}) == pytest.approx(different, abs=1e-6)
    collapsed = np.repeat(points[:, :1], 3, axis=1)
    assert set_similarity({"points": collapsed}) == pytest.approx(1, abs=1e-6)
    assert set_similarity({"points": points[:, :1]}) is None
    assert set_similarity({"mean": points[:, 0]}) is None


def test_labels_that_are_optional_leave_pmrp_out_with_a_sentence(tmp_path, caplog):
    missing = tmp_path / "instances.json"
    judgements = Judgements.from_pairs(np.array([0, 1]), 2)
    known = GroundTruth(["1", "2"], ["a", "b"], np.array([0, 1]), judgements)
    optional = LabelFiles(instances=missing, optional=True)
    assert labels_of_files(optional, known) == ()
    assert f"PMRP is not measured, as it needs the labels of the images: {missing}" in caplog.text
    with pytest.raises(UserError, match=r"instances\.json"):
        labels_of_files(LabelFiles(instances=missing), known)
    content = {
        "categories": [{"id": 4}, {"id": 9}],
        "annotations": [{"image_id": 1, "category_id": 9}, {"image_id": 2, "category_id": 4}],
    }
    missing.write_text(json.dumps(content), "utf-8")
    assert labels_of_files(optional, known) == [(1,), (0,)]
