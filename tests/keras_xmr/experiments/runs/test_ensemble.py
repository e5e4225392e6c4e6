"""Several runs evaluated as one, by the mean of their scores."""

from __future__ import annotations

import json

import models
import numpy as np
import pytest
from tiny_runs import untrained

from keras_xmr.commands import _cli as cli
from keras_xmr.commands._ensemble import evaluate_ensemble
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.reports.comparison.run_results import read_runs
from keras_xmr.metrics import ScoreMatrices, mean_scores
from keras_xmr.metrics.results import Results
from keras_xmr.utils.errors import ConfigError, UserError

OPTIONS = (
    *models.POINTS,
    "model.image.encoder={name: small_cnn, channels: [8]}",
    "evaluation.batch_size=64",
    "evaluation.rerankers=[{name: fast_reranking}]",
    "evaluation.save_scores=true",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of runs on the same scenes."""
    folder = tmp_path_factory.mktemp("runs")
    Experiment(models.tiny_config(folder)).prepare()
    return folder


@pytest.fixture(scope="module")
def members(folder):
    """Two runs of different seeds."""
    return [
        untrained(
            Experiment(models.tiny_config(folder, f"name=my_{name}", *OPTIONS, f"seed={seed}"))
        )
        for seed, name in enumerate(("one", "two"))
    ]


def scores_of(run: Experiment) -> np.ndarray:
    """The scores of one run alone."""
    part = run.records.split("test")
    embedded = embed_split(run.retriever, part, run.tokenizer, run.config)
    scores = score_tiles(run.retriever.matcher, embedded.images, embedded.captions, (7, 13)).dense()
    assert scores.other is None
    return scores.image_to_text


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_an_ensemble_is_the_mean_of_its_runs(folder, members, capsys):
    single = [scores_of(run) for run in members]
    assert np.abs(single[0] - single[1]).max() > 0.01
    paths = [run.folder.path for run in members]
    found = folder / "saved_models" / "ensemble-my_one-my_two"
    runs = ",".join(map(str, paths))
    cli.main(["main.py", "evaluate", f"--runs={runs}", "--set=evaluation.folds=3"])
    evaluation = found / "evaluation" / "test"
    scores = np.load(evaluation / "scores-test.npy")
    np.testing.assert_allclose(scores, (single[0] + single[1]) / 2, rtol=1e-5, atol=1e-6)
    results = Results.read(evaluation / "results.csv").select(method="model", minus="")
    own = results.select(reranker="", judgements="annotated")
    best = np.argmax(scores, axis=0)
    right = np.repeat(np.arange(12), 2)
    assert own.select(queries="mean over folds").summary()["t2i_mean_rank"] <= 4
    recall = own.select(queries="all").summary()["t2i_recall_1"]
    assert recall == pytest.approx(np.mean(best == right))
    assert results.distinct("matcher") == ["ensemble", ""]
    assert results.distinct("reranker") == ["", "fast_reranking"]
    assert "ensemble" in capsys.readouterr().out
    report = (evaluation / "report.html").read_text("utf-8")
    assert "How well the model finds photos and captions: ensemble-my_one-my_two" in report
    assert json.loads((found / "ensemble.json").read_bytes())["runs"] == [str(p) for p in paths]
    # `compare` takes it as a run.
    ((name, (result,)),) = read_runs([found])["test"].items()
    assert (name, result.matcher) == ("ensemble-my_one-my_two", "ensemble")
    assert np.mean(result.queries.values["annotated"]["t2i_recall_1"]) == pytest.approx(recall)


def test_an_ensemble_does_not_take_the_folder_of_something_else(folder, members):
    paths = [run.folder.path for run in members]
    with pytest.raises(ConfigError, match=r"my_two holds a run; choose .* --output"):
        evaluate_ensemble(members[0].config, paths, paths[1])
    output = folder / "mine"
    output.mkdir()
    (output / "ensemble.json").write_text('{"runs": ["a", "b"]}')
    with pytest.raises(ConfigError, match=r"mine holds the ensemble of other runs"):
        evaluate_ensemble(members[0].config, paths, output)


def test_a_run_given_twice_is_refused_before_models_are_loaded(folder, members):
    path = members[0].folder.path
    with pytest.raises(UserError, match="my_one appears twice"):
        evaluate_ensemble(members[0].config, [path, path], folder / "twice")
    assert not (folder / "twice").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_runs_that_make_no_ensemble(folder, members, tmp_path):
    config, path = members[0].config, members[0].folder.path
    with pytest.raises(ConfigError, match="at least two runs"):
        evaluate_ensemble(config, [path])
    small = "data.source={name: scenes, train: 40, val: 12, test: 11, captions_per_image: 2}"
    other = Experiment(models.tiny_config(tmp_path, "name=other", *OPTIONS, small))
    other.prepare()
    untrained(other)
    with pytest.raises(UserError, match=r"other has other images or captions in the split 'test'"):
        evaluate_ensemble(config, [path, other.folder.path], folder / "unlike")
    assert not (folder / "unlike" / "evaluation").exists()


def test_means_of_scores_by_direction(random):
    first, second, third, t2i = random.normal(size=(4, 3, 5)).astype(np.float32)
    kept = first.copy()
    mean = mean_scores(map(ScoreMatrices, (first, second, third)))
    expected = (first + second + third) / 3
    np.testing.assert_allclose(mean.image_to_text, expected, rtol=1e-5, atol=1e-6)
    assert mean.other is None
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        found = [ScoreMatrices(first), ScoreMatrices(second, t2i), ScoreMatrices(third)]
        mean = mean_scores(found[i] for i in order)
        np.testing.assert_allclose(mean.image_to_text, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mean.other, (first + t2i + third) / 3, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(first, kept)
