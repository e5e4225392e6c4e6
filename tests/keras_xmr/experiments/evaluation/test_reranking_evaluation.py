"""Re-rankers in a run: what the config says, separate tables, and the search of scales."""

from __future__ import annotations

import json
import time

import models
import numpy as np
import pytest
import scipy.sparse
import yaml
from tiny_runs import copy_of, evaluated, sharing

from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.evaluation.tuning import search_scales
from keras_xmr.experiments.reports.rerank_scales import scale_pictures, search_lines, search_tables
from keras_xmr.experiments.reports.result_tables import result_tables
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import ScoreMatrices, evaluate_scores, measure
from keras_xmr.metrics.results import Results
from keras_xmr.reranking import FastReranking, build_rerankers, measure_reranked
from keras_xmr.reranking.base import Reranked, Reranker
from keras_xmr.utils.errors import ConfigError

RERANKERS = (
    "evaluation.rerankers=[{name: fast_reranking, gamma1: 2, gamma2: 3}, "
    "{name: fast_reranking, preset: cub}, reciprocal_neighbours, multi_factor]"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained):
    overrides = (
        "evaluation.folds=3",
        "evaluation.matchers=[mean_only]",
        RERANKERS,
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
def retrieval(random):
    """Scores with several right answers a query, some without any, and some ties."""
    right = random.random((30, 50)) < 0.06
    right[3] = False
    right[:, 9] = False
    scores = random.normal(size=(30, 50)) + 1.5 * right + 0.8 * random.normal(size=50)
    return np.round(scores, 1).astype(np.float32), Judgements(scipy.sparse.csr_array(right))


@pytest.mark.slow
def test_every_matcher_is_re_ranked_by_every_re_ranker(evaluation):
    labels = ["fast_reranking", "fast_reranking_2", "reciprocal_neighbours", "multi_factor"]
    assert list(evaluation.reranked) == labels
    assert all(list(own) == list(evaluation.measured) for own in evaluation.reranked.values())
    # What stands there is what the re-ranker gives for the scores of that matcher.
    found = evaluation.reranked["fast_reranking"]["mean_only"]
    i2t, t2i = FastReranking(gamma1=2, gamma2=3)(evaluation.matchers[1].scores.image_to_text)
    again = evaluate_scores(ScoreMatrices(i2t, t2i), evaluation.judgements, (5, 10))
    assert again.summary.items() <= found.metrics.summary.items()
    truth = evaluate_scores(ScoreMatrices(i2t, t2i), evaluation.truth, (5, 10))
    assert found.extra["truth"].summary == truth.summary


def test_a_fold_is_re_ranked_on_its_own(run, evaluation):
    owners = run.records.split("test").caption_image
    scores = evaluation.matchers[0].scores.image_to_text
    changed = scores.copy()
    changed[:4, owners >= 4] += 100  # Between folds: what no fold may see.
    for name, reranker in build_rerankers(run.config.evaluation.rerankers).items():
        sums = []
        for fold in range(3):
            images = np.arange(4 * fold, 4 * fold + 4)
            captions = np.flatnonzero(np.isin(owners, images))
            i2t, t2i = reranker(changed[np.ix_(images, captions)])
            right = evaluation.judgements.select(images, captions)
            sums.append(evaluate_scores(ScoreMatrices(i2t, t2i), right).summary["rsum"])
        found = evaluation.reranked[name]["match_probability"]
        assert found.folds["rsum"] == pytest.approx(np.mean(sums))


def test_re_ranked_figures_have_tables_of_their_own(evaluation):
    tables = result_tables(results_of(evaluation))
    times = tables.pop()
    plain = [table for table in tables if "transductive" not in table.title]
    assert tables[: len(plain)] == plain
    for name, by_matcher in evaluation.reranked.items():
        own = [table for table in tables if f"re-ranked by {name}, " in table.title]
        assert [t.title.rpartition(",")[2] for t in own] == [
            t.title.rpartition(",")[2] for t in plain
        ]
        assert [row[0] for row in own[0].rows] == ["match_probability", "mean_only", "chance"]
        assert all(len(line) < 120 for line in str(own[0]).splitlines())
        rsum = [found.metrics.summary["rsum"] for found in by_matcher.values()]
        assert [row[-1] for row in own[0].rows[:-1]] == [f"{value:.1f}" for value in rsum]
    assert len(tables) == len(plain) * (1 + len(evaluation.reranked))
    assert all("re-ranked" not in str(table) for table in plain)
    assert [row[:2] for row in times.rows] == [
        [matcher, name] for name, found in evaluation.reranked.items() for matcher in found
    ]
    assert all(float(cell) > 0 for row in times.rows for cell in row[2:])


def test_seconds_are_of_the_re_ranking_alone(retrieval):
    class Slow(Reranker):
        def rerank(self, scores):
            time.sleep(0.05)
            return Reranked(scores, scores)

    scores, judgements = retrieval
    truth = GroundTruth(
        [str(image) for image in range(30)],
        [str(caption) for caption in range(50)],
        np.zeros(50, np.int64),
        judgements,
    )
    begun = time.perf_counter()
    seconds = measure_reranked(Slow(), scores, truth).seconds
    assert 0.05 <= seconds < time.perf_counter() - begun
    assert measure(scores, truth).seconds is None


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_plain_figures_do_not_change_and_training_does_not_re_rank(run, evaluation):
    config = run.config.model_copy(
        update={"evaluation": run.config.evaluation.model_copy(update={"rerankers": ()})}
    )
    without = evaluate_split(run.retriever, run.records, "test", run.tokenizer, config)
    whole = results_of(evaluation)
    assert results_of(without) == whole.select(reranker="")
    assert len(whole.distinct("reranker")) > 1
    whole = evaluation.matchers[0].metrics.summary
    for asp in (False, True):
        train = run.config.train.model_copy(update={"validate_semantic_precision": asp})
        config = run.config.model_copy(update={"train": train})
        brief = evaluate_split(
            run.retriever, run.records, "test", run.tokenizer, config, brief=True
        )
        assert brief.reranked == {}
        found = {k: v for k, v in brief.matchers[0].metrics.summary.items() if k.endswith("_asp")}
        assert found.keys() == ({"i2t_asp", "t2i_asp"} if asp else set())
        assert found.items() <= whole.items()


@pytest.mark.slow
def test_reports_hold_the_re_ranked_figures(run, done):
    assert "re-ranked by multi_factor" in done[1]
    folder = run.folder.evaluation("test")
    results = Results.read(folder / "results.csv")
    found = results.select(matcher="mean_only", reranker="multi_factor")
    assert {"all", "mean over folds"} <= set(found.distinct("queries"))
    assert found.distinct("judgements") == ["annotated", "truth", ""]
    times = found.select(judgements="")
    assert [row.metric for row in times] == ["scoring_seconds", "reranking_seconds"]
    assert all(row.unit == "seconds" and row.value > 0 for row in times)
    queries = np.load(folder / "queries-test.npz")
    assert queries["mean_only + fast_reranking_2/t2i_recall_1"].shape == (24,)
    assert "re-ranked by fast_reranking_2" in (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("[fast_rerank]", "fast_reranking"),
        ("[{name: fast_reranking, gama1: 3}]", "Did you mean 'gamma1'"),
        ("[{name: fast_reranking, gamma1: -3}]", "greater than 0"),
        ("[{name: fast_reranking, preset: imagenet}]", "flickr30k"),
        ("[{name: reciprocal_neighbours, neighbours: 0}]", "greater than 0"),
    ],
)
def test_mistakes_in_the_config_are_named(tmp_path, setting, says):
    with pytest.raises(ConfigError, match=says):
        models.tiny_config(tmp_path, f"evaluation.rerankers={setting}")


def test_search_finds_what_evaluating_every_setting_finds(retrieval):
    scores, judgements = retrieval
    scales = (0.3, 1.0, 4.0)
    search = search_scales(scores, judgements, scales)
    for kind, direction in (("gamma", "i2t"), ("lambda", "t2i")):
        settings = search.settings[kind]
        assert len({(s.sum_scale, s.own_scale) for s in settings}) == 9
        for setting in settings:
            options = {f"{kind}1": setting.sum_scale, f"{kind}2": setting.own_scale}
            i2t, t2i = FastReranking(**options)(scores)
            metrics = evaluate_scores(ScoreMatrices(i2t, t2i), judgements)
            recalls = [metrics.summary[f"{direction}_recall_{k}"] for k in (1, 5, 10)]
            assert setting.recalls == pytest.approx(recalls)
            queries = metrics.image_to_text if kind == "gamma" else metrics.text_to_image
            reciprocal = np.nanmean(1 / queries.values["rank"])
            assert setting.reciprocal_rank == pytest.approx(reciprocal)
        assert settings[0].worth == max(s.worth for s in settings)
        plain = evaluate_scores(scores, judgements).summary
        assert sum(search.plain[kind].recalls) == pytest.approx(
            sum(plain[f"{direction}_recall_{k}"] for k in (1, 5, 10))
        )


def test_search_says_what_to_write_and_when_the_grid_ends(retrieval):
    search = search_scales(*retrieval, scales=(0.3, 1.0, 4.0))
    text = "\n".join(search_lines(search))
    section = yaml.safe_load(text[text.index("evaluation:") :].partition("\n\n")[0])
    (chosen,) = section["evaluation"]["rerankers"]
    assert chosen == {
        "name": "fast_reranking",
        "gamma1": search.settings["gamma"][0].sum_scale,
        "gamma2": search.settings["gamma"][0].own_scale,
        "lambda1": search.settings["lambda"][0].sum_scale,
        "lambda2": search.settings["lambda"][0].own_scale,
    }
    assert "end of the grid" in "\n".join(search_lines(search_scales(*retrieval, scales=(1.0,))))
    perfect = retrieval[1].grades.toarray()
    useless = search_lines(search_scales(perfect, retrieval[1], (1.0, 2.0)))
    assert "No gamma1 and gamma2 does better than no re-ranking." in useless
    tables = search_tables(search, "val")
    assert [row[0] for table in tables for row in table.rows].count("none") == 2
    assert all("transductive" in table.title for table in tables)


def test_the_scales_are_drawn_as_a_heat_map(retrieval, tmp_path):
    search = search_scales(*retrieval, scales=(0.5, 2, 8))
    pictures = {picture.name: picture for picture in scale_pictures(search)}
    assert set(pictures) == {"rerank_scales_gamma", "rerank_scales_lambda"}
    picture = pictures["rerank_scales_gamma"]
    shown = picture.drawing.axes[0].images[0].get_array()
    best = search.settings["gamma"][0]
    gain = 100 * (sum(best.recalls) - sum(search.plain["gamma"].recalls))
    assert shown.max() == pytest.approx(gain)
    row, column = np.unravel_index(shown.argmax(), shown.shape)
    assert gain == pytest.approx(shown[row, column])
    picture.write(tmp_path)
    assert len((tmp_path / "rerank_scales_gamma.csv").read_text().splitlines()) == 10


def test_search_refuses_what_it_cannot_search_by(retrieval):
    scores, judgements = retrieval
    with pytest.raises(ValueError, match="nothing to search by"):
        search_scales(scores, Judgements(scipy.sparse.csr_array(scores.shape)))
    with pytest.raises(ValueError, match=r"\(30, 50\)"):
        search_scales(scores[:, 1:], judgements)
    scores[2, 3] = np.nan
    with pytest.raises(ValueError, match="nan"):
        search_scales(scores, judgements)


@pytest.mark.slow
@pytest.mark.usefixtures("eager", "undrawn")
def test_the_mode_prints_settings_that_the_config_takes(run, capsys, tmp_path):
    run.tune_reranker()
    printed = capsys.readouterr().out
    assert "image-to-text" in printed
    section = yaml.safe_load(printed[printed.index("evaluation:\n") :].partition("\n\n")[0])
    setting = json.dumps(section["evaluation"]["rerankers"])
    config = models.tiny_config(tmp_path, f"evaluation.rerankers={setting}")
    assert config.evaluation.rerankers[0].name == "fast_reranking"
