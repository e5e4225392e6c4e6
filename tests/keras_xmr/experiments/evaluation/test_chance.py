"""What a random ranking has, against random rankings; and the verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.advice import advice, advice_before_training, larger_split
from keras_xmr.experiments.evaluation.split_evaluation import evaluate_split_scores
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.result_tables import verdict_line
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import (
    ScoreMatrices,
    chance,
    chance_from_counts,
    chance_recall,
    evaluate_scores,
    verdict,
)

RIGHT = np.array([[1, 1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0], [1, 0, 0, 1, 1, 1, 1]])


def judged(right):
    return Judgements(scipy.sparse.csr_array(np.asarray(right, np.float32)))


@pytest.mark.slow
def test_chance_is_the_mean_of_random_rankings(random):
    judgements = judged(RIGHT)
    found = [evaluate_scores(random.normal(size=RIGHT.shape), judgements) for _ in range(300)]
    expected = chance(found[0])
    names = set(found[0].summary) - {"i2t_median_rank", "t2i_median_rank"}
    assert names == set(expected)
    for name in names:
        values = [each.summary[name] for each in found]
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - expected[name]) <= 4.5 * error + 1e-9, name


def test_the_curve_of_chance_is_that_of_its_recalls(random):
    right = random.integers(0, 9, 40)
    expected = chance_from_counts(right, np.ones(30, int))
    found = chance_recall(right, 30, np.array([1, 5, 10, 30, 99]))
    np.testing.assert_allclose(found[:3], [expected[f"i2t_recall_{k}"] for k in (1, 5, 10)])
    np.testing.assert_allclose(found[3:], 1.0)


def test_only_what_is_surely_better_than_chance_is_called_so(random):
    images = np.repeat(np.arange(60), 5)
    judgements = judged(np.equal.outer(np.arange(60), images))
    noise = random.normal(size=judgements.shape)
    blind = verdict(evaluate_scores(noise, judgements), images)
    assert not blind.is_better_than_chance
    assert blind.low < blind.rsum < blind.high
    assert str(blind).startswith("No better than chance: RSUM")
    seeing = verdict(
        evaluate_scores(noise + np.equal.outer(np.arange(60), images), judgements), images
    )
    assert seeing.is_better_than_chance
    assert seeing.chance == pytest.approx(blind.chance)
    assert "where a random ranking has" in str(seeing)
    assert "rough estimate" not in str(seeing)
    assert str(replace(seeing, images=10)).endswith("on 10 images, this is a rough estimate.")
    assert str(replace(seeing, images=9)).startswith("9 images are too few for a conclusion: RSUM")
    assert str(replace(seeing, images=1)).startswith("1 image is too few for a conclusion: RSUM")


@pytest.mark.parametrize("agrees", [True, False])
def test_a_truth_that_says_otherwise_is_heard(random, agrees):
    images = np.repeat(np.arange(60), 5)
    own = np.equal.outer(np.arange(60), images)
    scores = random.normal(size=own.shape) + own
    truth = GroundTruth(range(60), range(300), images, judged(own))
    truth.extra["truth"] = judged(own if agrees else np.roll(own, 30, axis=0))

    def verdict_of(*names):
        matchers = [(name, ScoreMatrices(scores)) for name in names]
        return verdict_line(results_of(evaluate_split_scores("test", matchers, truth)))

    line = verdict_of("cosine")
    assert line.startswith("Better than chance: RSUM")
    both = verdict_of("cosine", "other")
    assert both == f"With the matcher cosine: {line.replace('B', 'b', 1)}"
    assert ("By the exhaustive truth: No better than chance: RSUM" in line) is not agrees


@pytest.mark.parametrize(
    ("name", "images", "before", "after"),
    [
        ("csv_pcme", 300, "begin with csv_pretrained", "Try csv_pretrained"),
        ("csv_pcme", 50_000, None, None),
        ("csv_pretrained", 300, None, "More of them help"),
        ("csv_pretrained", 600, None, None),
        ("csv_pretrained", 6_000, None, "csv_pretrained_trained"),
        ("csv_pretrained_trained", 600, "gained nothing over csv_pretrained", None),
        ("csv_pretrained_trained", 6_000, None, None),
        ("scenes_pcme", 300, None, None),
    ],
)
def test_few_photos_are_told_what_helps(name, images, before, after):
    config = load_config(find_config(name))
    for said, wanted in (
        (advice_before_training(config, images), before),
        (advice(config, images), after),
    ):
        assert (said is None) if wanted is None else wanted in said


def test_captions_in_a_language_that_the_encoder_does_not_know_are_no_matter_of_more_photos():
    config = load_config(find_config("csv_pretrained"))
    said = advice(config, 300, lambda: True)
    assert "More of them help" not in said
    assert "model.text.encoder.preset" in said


@pytest.mark.parametrize(
    ("name", "override", "images", "said"),
    [
        ("csv_pretrained", "data.source.test_share=0.2", 9, "increase data.source.test_share"),
        ("csv_pretrained", "data.source.test_share=0.2", 10, None),
        ("csv_pretrained", "data.source.splits=splits.csv", 9, None),
        ("scenes_pcme", "seed=1", 9, None),
    ],
)
def test_a_split_that_is_drawn_can_be_larger(name, override, images, said):
    found = larger_split(load_config(find_config(name), [override]), "test", images)
    assert (found is None) if said is None else said in found
