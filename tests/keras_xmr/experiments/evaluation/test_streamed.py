"""Evaluation tile by tile: the same figures without a whole matrix, and a plan before it."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from models import gaussians
from tiny_runs import copy_of, sharing

from keras_xmr import matchers
from keras_xmr.commands._cli import main
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.scoring import check_time, fits_in_memory, score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import join
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.metrics import ScoreMatrices, ScoreTiles
from keras_xmr.metrics.results import Results
from keras_xmr.parts.contracts import MatcherContract
from keras_xmr.utils.errors import UserError

ROOT = Path(__file__).parents[4]
RANKS_ALONE = ("evaluation.semantic_precision=false", "evaluation.memory_budget=1 KiB")


class MeanTokens(matchers.Matcher):
    """The inner product of the means of tokens."""

    CONTRACT = MatcherContract(accepts=("tokens",))

    def call(self, image, caption):
        means = [
            keras.ops.sum(e["tokens"] * e["mask"][..., None], axis=1)
            / keras.ops.sum(e["mask"], axis=1)[:, None]
            for e in (image, caption)
        ]
        return keras.ops.matmul(means[0], keras.ops.transpose(means[1]))


def tokens(random, count):
    lengths = random.integers(1, 6, count)
    return join([(random.normal(size=(lengths.sum(), 6)).astype(np.float32), lengths)])


@pytest.mark.slow
def test_a_selection_has_the_scores_of_its_members(random):
    for embeddings, matcher in (
        (gaussians, matchers.Mahalanobis()),
        (tokens, MeanTokens()),
    ):
        scores = score_tiles(matcher, embeddings(random, 5), embeddings(random, 7), (2, 3))
        images, captions = np.array([4, 1]), np.array([6, 0, 2])
        some, whole = scores.select(images, captions), scores.dense()
        assert not some.is_dense
        for found, expected in zip(some.by_query, whole.by_query, strict=True):
            picked = expected[
                np.ix_(*((images, captions) if len(found) == 2 else (captions, images)))
            ]
            np.testing.assert_allclose(found, picked, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("eager", "undrawn")
def test_a_run_beyond_the_budget_has_the_same_figures_and_report(trained, tmp_path, monkeypatch):
    overrides = ("evaluation.matchers=[mean_only]", "evaluation.folds=3", *RANKS_ALONE)
    run = sharing(copy_of(trained, tmp_path, *overrides), trained)
    whole = run.config.evaluation.model_copy(
        update={"memory_budget": EvaluationOptions().memory_budget}
    )
    dense = run.config.model_copy(update={"evaluation": whole})
    expected = results_of(
        evaluate_split(run.retriever, run.records, "test", run.tokenizer, dense)
    ).select(method="model")
    assert "truth" in expected.distinct("judgements")

    array = ScoreTiles.__array__

    def of_a_few(tiles, *arguments, **options):
        assert min(tiles.shape) <= 6
        return array(tiles, *arguments, **options)

    monkeypatch.setattr(ScoreTiles, "__array__", of_a_few)
    run.evaluate()
    folder = run.folder.evaluation("test")
    assert Results.read(folder / "results.csv").select(method="model", minus="") == expected
    assert (folder / "report.html").read_text("utf-8").count("data:image/jpeg") > 10


def test_what_reads_whole_matrices_is_refused_where_they_do_not_fit(caplog):
    shape = (50_000, 250_000)
    options = EvaluationOptions(save_scores=True)
    with pytest.raises(UserError) as refused:
        fits_in_memory(options, shape, 1, labels=True)
    for text in (
        "50,000 x 250,000",
        "139.7GiB, more than evaluation.memory_budget (8.0GiB)",
        "evaluation.semantic_precision, evaluation.plausible_match, evaluation.save_scores",
    ):
        assert text in str(refused.value)
    options = EvaluationOptions(semantic_precision=False)
    with caplog.at_level("INFO", "keras_xmr"):
        assert not fits_in_memory(options, shape, 2, labels=False)
    assert "ranks are counted tile by tile" in caplog.text
    assert fits_in_memory(options, (5_000, 25_000), 2, labels=False)
    assert not fits_in_memory(
        EvaluationOptions(memory_budget=7999, semantic_precision=False), (20, 100), 1, False
    )
    assert fits_in_memory(
        EvaluationOptions(memory_budget=8000, semantic_precision=False), (20, 100), 1, False
    )


class SlowTiles(ScoreTiles):
    """Tiles of one score each, by a clock that they turn."""

    def __init__(self, clock):
        super().__init__([np.array([i]) for i in range(10)], [np.array([i]) for i in range(20)])
        self.clock = clock

    def tile(self, row, column):
        self.clock.append(self.clock[-1] + (1000 if len(self.clock) == 1 else 36))
        return np.zeros((1, 1), np.float32)

    def select(self, images, captions):
        raise NotImplementedError


def test_a_long_evaluation_is_announced_and_refused_beyond_its_limit(caplog, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(
        "keras_xmr.experiments.evaluation.scoring.time.perf_counter", lambda: clock[-1]
    )
    owner = np.arange(20) // 2

    def check(scores, streamed, hours):
        check_time("sgraf", scores, owner, streamed, hours)

    with caplog.at_level("INFO", "keras_xmr"):
        # 200 tiles of 36 s: the first one alone was slow.
        check(ScoreMatrices(SlowTiles(clock)), False, 2.0)
    assert caplog.messages == ["sgraf: 10 x 20 scores in 200 tiles take about 2.0 h"]
    with pytest.raises(UserError, match=r"about 2\.2 h.*--yes.*a smaller split"):
        # Of the tiles, 20 have right answers and are scored twice.
        check(ScoreMatrices(SlowTiles(clock)), True, 2.0)
    with pytest.raises(UserError, match=r"about 2\.6 h"):
        # The tiles of 5 folds are a fifth of all.
        check_time("sgraf", ScoreMatrices(SlowTiles(clock)), owner, True, 2.0, folds=5)
    with pytest.raises(UserError, match=r"about 4\.0 h"):
        check(ScoreMatrices(SlowTiles(clock), SlowTiles(clock)), False, 2.0)
    check(ScoreMatrices(SlowTiles(clock), SlowTiles(clock)), False, None)


@pytest.mark.parametrize(("words", "limit"), [((), 12.0), (("--yes",), None)])
def test_yes_lifts_the_limit(words, limit, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []
    for step in ("evaluate", "run"):
        monkeypatch.setattr(Experiment, step, lambda self: seen.append(self.config))
    for command in ("evaluate", "run"):
        main(["main.py", command, "--config=scenes_pcme", *words])
    assert [config.evaluation.time_limit for config in seen] == [limit, limit]
