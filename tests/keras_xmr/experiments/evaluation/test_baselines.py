"""The simpler models that a trained one is compared with."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from keras_xmr.experiments.evaluation import baselines
from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.result_tables import (
    bad_news,
    plain_lines,
    summary_table,
    verdict_line,
)
from keras_xmr.judgements import GroundTruth, judge
from keras_xmr.metrics import ScoreMatrices, rsum_difference


class Split(SimpleNamespace):
    """Vectors in place of features."""

    def __len__(self):
        return len(self.vectors[0])


def split_of(random, count: int, noise: float, maps) -> Split:
    """Images and their two captions, which are linear maps of what they have in common."""
    image_ids = np.repeat(np.arange(count), 2)
    common = random.normal(size=(count, 8))
    images = common @ maps[0] + noise * random.normal(size=(count, maps[0].shape[1]))
    captions = common[image_ids] @ maps[1]
    captions += noise * random.normal(size=captions.shape)
    return Split(
        caption_image=image_ids, labels=None, num_captions=2 * count, vectors=(images, captions)
    )


class Records(dict):
    """Splits by name."""

    @property
    def splits(self):
        return list(self)

    def split(self, name):
        return self[name]


@pytest.fixture
def evaluate(random, monkeypatch):
    """Evaluates a model of random scores on splits with some noise, with the linear model."""
    monkeypatch.setattr(baselines, "_has_features", lambda split: True)
    monkeypatch.setattr(baselines, "_means_of_split", lambda split, config: split.vectors)

    def run(noise: float, names=("train", "val", "test"), encoder=None, pooling=None, kept=None):
        maps = random.normal(size=(8, 20)), random.normal(size=(8, 12))
        records = Records()
        for name in names:
            records[name] = split_of(random, 40, noise, maps)
        split = records["test"]
        scores = ScoreMatrices(random.normal(size=(40, 80)))
        truth = GroundTruth(
            image_ids=[str(i) for i in range(40)],
            caption_ids=[str(i) for i in range(80)],
            caption_image=split.caption_image,
            judgements=judge("pairs", split.caption_image, None, 40),
            rule="pairs",
        )
        evaluation = evaluate_split_scores("test", [("cosine", scores)], truth)
        options = SimpleNamespace(folds=0)
        tower = SimpleNamespace(encoder=encoder, pooling=pooling)
        config = SimpleNamespace(
            evaluation=options,
            data=SimpleNamespace(judgements="pairs", image=None),
            model=SimpleNamespace(**dict.fromkeys(("image", "text"), tower)),
            train=SimpleNamespace(phases=["one"]),
        )
        evaluation.linear = baselines.add_baselines(evaluation, records, config, kept)
        return evaluation

    return run


def test_it_finds_what_is_linear(evaluate):
    evaluation = evaluate(0.1)
    found = evaluation.baselines[baselines.LINEAR].metrics.summary
    assert found["rsum"] > 550
    assert (
        evaluate(0.1, ("train", "test")).baselines[baselines.LINEAR].metrics.summary["rsum"] > 500
    )
    table = str(summary_table(results_of(evaluation)))
    assert table.index(baselines.LINEAR) < table.index("chance")
    lines = plain_lines(results_of(evaluation))
    opening = r"Given a caption, the model puts a right photo first in \d+ of 100 .* 40 photos"
    assert re.match(opening, lines[0])
    assert lines[-1].startswith(f"Worse than a {baselines.LINEAR} on the same features: RSUM -")
    assert lines[-1].endswith("No gain of training over it was found on this split.")
    verdict = verdict_line(results_of(evaluation))  # Its scores are random.
    assert bad_news(results_of(evaluation), verdict) == [lines[-1], verdict]


def test_chosen_options_are_kept(evaluate, monkeypatch):
    chosen = evaluate(0.1).linear
    assert chosen.settings == 1
    monkeypatch.setattr(baselines.CanonicalCorrelations, "best", None)
    again = evaluate(0.1, kept=chosen)
    assert again.linear == chosen
    assert again.baselines[baselines.LINEAR].metrics.summary["rsum"] > 550


def test_it_is_corrected_for_hubs_where_the_model_is(evaluate):
    evaluation = evaluate(1.0, pooling=SimpleNamespace(local_scaling=25))
    assert list(evaluation.baselines) == [baselines.LINEAR, baselines.LINEAR_CSLS]
    plain, corrected = (found.metrics.summary["rsum"] for found in evaluation.baselines.values())
    assert plain != corrected > 1
    assert str(summary_table(results_of(evaluation))).count("CSLS") == 1


def test_it_finds_nothing_in_noise(evaluate, monkeypatch):
    evaluation = evaluate(100.0)
    own, other = evaluation.matchers[0].metrics, evaluation.baselines[baselines.LINEAR].metrics
    found = rsum_difference(own, other, evaluation.ground_truth.caption_image)
    assert found.value == pytest.approx(own.summary["rsum"] - other.summary["rsum"])
    assert found.low < 0 < found.high
    line = plain_lines(results_of(evaluation))[-1]
    assert line.startswith("No better than a")
    assert line.endswith("No gain of training over it was found on this split.")
    results = results_of(evaluation)
    assert line in bad_news(results, verdict_line(results))
    monkeypatch.setattr(type(evaluation), "images", 9)
    assert "are too few to compare the model with it" in plain_lines(results_of(evaluation))[-1]


def test_there_is_none_without_a_training_split_or_of_too_many_captions(evaluate, monkeypatch):
    assert evaluate(0.1, ("val", "test")).baselines == {}
    monkeypatch.setattr(baselines, "_MOST", 10)
    assert evaluate(0.1).baselines == {}


def test_towers_of_one_model_are_compared_as_published(evaluate, monkeypatch):
    clip = SimpleNamespace(preset="clip", weights="preset", output="pooled")
    monkeypatch.setattr(
        baselines,
        "_means_of_split",
        lambda split, config: (split.vectors[0], split.vectors[0][split.caption_image]),
    )
    evaluation = evaluate(100.0, ("test",), clip)
    assert list(evaluation.baselines) == [baselines.ZERO_SHOT]
    assert evaluation.baselines[baselines.ZERO_SHOT].metrics.summary["rsum"] == pytest.approx(600)
    assert "Worse than a zero-shot model (no training)" in plain_lines(results_of(evaluation))[-1]
    clip.output = "tokens"
    assert evaluate(100.0, ("test",), clip).baselines == {}


def test_places_that_are_not_there_do_not_count():
    features = np.zeros((2, 3, 2), np.float32)
    features[0, :2] = [[1, 3], [3, 5]]
    np.testing.assert_array_equal(baselines._means(features), [[2, 4], [0, 0]])
