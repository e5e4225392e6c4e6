"""How much a part of an embedding in closed form counts beside what was learned."""

from __future__ import annotations

import logging

import numpy as np
import projected_runs
import pytest

from data_pipelines.batches import image_batches
from keras_xmr.config.loader import ConfigError
from keras_xmr.judgements import judge
from keras_xmr.metrics import evaluate_scores
from keras_xmr.model.build import build_tokenizer
from keras_xmr.training.cca_start import WEIGHTS, choose_weight, start_from_cca, weighted_poolings

CLOSED_FORM = (
    "model.image.pooling={name: projection, power: 0.5, closed_form: 2}",
    "model.text.pooling={name: projection, closed_form: 2}",
    "train.start=cca",
)


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    return projected_runs.prepared(tmp_path_factory.mktemp("regions"))


def recalls(run, model, tokenizer, weight):
    """The sum of recalls on the validation split with a weight, from pixels and words."""
    for pooling in weighted_poolings(model):
        pooling.closed_form_weight.assign(weight)
    split = run.records.split("val")
    images = next(iter(image_batches(split, run.config.data.image, 99)))
    embedded = model(
        {"image": images, "caption": tokenizer([caption.text for caption in split.captions])}
    )
    scores = np.asarray(model.score(embedded["image"], embedded["caption"]))
    truth = judge("pairs", split.caption_image, split.labels, len(split))
    return evaluate_scores(scores, truth).summary["rsum"]


@pytest.mark.slow
def test_the_weight_is_the_best_one_on_the_validation_split(regions, caplog):
    run = projected_runs.run(regions, *CLOSED_FORM)
    model, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    start_from_cca(model, run.records, tokenizer, run.config)
    with caplog.at_level(logging.INFO):
        choose_weight(model, run.records, tokenizer, run.config)
    chosen = [float(p.closed_form_weight.numpy()) for p in weighted_poolings(model)]
    sums = [recalls(run, model, tokenizer, weight) for weight in WEIGHTS]
    assert len(set(sums)) > 1
    assert chosen == pytest.approx([WEIGHTS[int(np.argmax(sums))]] * 2)
    assert "weight of the closed form" in caplog.text


@pytest.mark.slow
def test_training_leaves_the_closed_form_as_it_is(regions, tmp_path):
    run = projected_runs.run(regions, *CLOSED_FORM, f"output={tmp_path}")
    begun, tokenizer = projected_runs.model_of(run), build_tokenizer(run.config, run.records)
    start_from_cca(begun, run.records, tokenizer, run.config)
    run.train()
    trained = projected_runs.run(regions, *CLOSED_FORM, f"output={tmp_path}").model
    for before, after in zip(weighted_poolings(begun), weighted_poolings(trained), strict=True):
        np.testing.assert_allclose(after.closed_form_kernel, before.closed_form_kernel, rtol=1e-6)
        assert np.abs(after.kernel - before.kernel).max() > 1e-3
        assert np.isclose(WEIGHTS, float(after.closed_form_weight.numpy())).any()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (CLOSED_FORM[:2], "nothing sets the closed form; write train.start: cca"),
        ((CLOSED_FORM[0], CLOSED_FORM[2]), "both towers need the same number"),
        ((*CLOSED_FORM, "model.dimension=2"), "2 leaves none of the 2 numbers"),
        (
            (*CLOSED_FORM, "model.image.head=laplace"),
            "'laplace' reads the whole matrix of its pooling",
        ),
    ],
)
def test_a_closed_form_that_nothing_sets_or_reads_is_refused(tmp_path, overrides, says):
    with pytest.raises(ConfigError, match=says):
        projected_runs.config(tmp_path, *overrides)
