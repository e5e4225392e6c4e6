"""Matchers that score by direction, from the config to the export."""

from __future__ import annotations

import models
import numpy as np
import pytest
import tensorflow as tf
import tiny_runs

from keras_xmr import matchers
from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.scoring import MatcherScores, score_tiles
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.saved_model import _Endpoints
from keras_xmr.utils.errors import ConfigError

MSRM = (
    "model.matcher={name: mahalanobis_cosine}",
    "objective=[{name: mahalanobis_contrastive, weight: 0.8}, hypergraph_contrastive]",
    "evaluation.matchers=[cosine, mahalanobis]",
    "evaluation.folds=3",
    "train.phases=[{epochs: 1, learning_rate: 1e-3}]",
)


@pytest.mark.slow
def test_both_directions_are_scored_where_they_differ(random):
    image, caption = models.gaussians(random, 5), models.gaussians(random, 7)
    scores = score_tiles(matchers.Mahalanobis(), image, caption, (2, 3)).dense()
    i2t, t2i = scores.image_to_text, scores.text_to_image
    assert i2t.shape == t2i.shape == (5, 7)
    turned = np.asarray(MatcherScores(matchers.Mahalanobis(), caption, image, (9, 9)))
    np.testing.assert_allclose(t2i, turned.T, rtol=1e-4, atol=1e-4)
    assert np.abs(i2t - t2i).max() > 0.1
    assert score_tiles(matchers.Cosine(), image, caption, (2, 3)).dense().other is None


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_run_of_msrm_is_evaluated_and_exported_in_both_directions(tmp_path, trained):
    records = f"data.records={trained.config.data.records}"
    run = tiny_runs.in_memory(Experiment(models.tiny_config(tmp_path, records, *MSRM)))
    evaluation = evaluate_split(run.retriever, run.records, "test", run.tokenizer, run.config)
    assert [m.name for m in evaluation.matchers] == ["mahalanobis_cosine", "cosine", "mahalanobis"]
    directed, plain, _ = evaluation.matchers
    assert directed.scores.other.shape == directed.scores.shape == (12, 24)
    assert plain.scores.other is None
    split = run.records.split("test")
    captions = [caption.text for caption in split.captions]
    # The image is the query of the export.
    exported = _Endpoints(run.retriever, run.tokenizer, run.config.data.image)
    found = exported.match(tf.constant([split.encoded(0)]), tf.constant([captions]))["scores"]
    expected = directed.scores.image_to_text[:1]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.matcher=mahalanobis"], "one score of each pair.*evaluation.matchers"),
        (["objective=[mahalanobis_contrastive]"], "no loss of the objective reads its scores"),
        (["objective=[kl_divergence, {name: daa, similarity: dot}]"], "no loss of the objective"),
        (["model.image.head=point", "objective=[hypergraph_contrastive]"], "works on gaussian"),
        (["objective=[probabilistic_matching]", "model.matcher=elk"], "log-odds of a match"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=f"(?s){says}"):
        models.tiny_config(tmp_path, *overrides)


def test_daa_trains_with_a_matcher_that_scores_by_direction(tmp_path):
    config = models.tiny_config(tmp_path, "model.matcher=mahalanobis", "objective=[daa]")
    assert config.model.matcher.name == "mahalanobis"
