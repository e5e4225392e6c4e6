"""Relevance on its way from the captions to a loss."""

from __future__ import annotations

import csv
import itertools

import models
import numpy as np
import pytest
from relevance_run import batch, fits_relevance

from data_pipelines.batches import training_batches
from data_pipelines.samplers import PairSampler
from keras_xmr.experiments.build import build_model
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.relevance import RelevanceMatrix, ptb_tokenize, weigh
from keras_xmr.utils.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(trained):
    """The relevance of all pairs of the training split."""
    split = trained.records.split("train")
    words = ptb_tokenize(caption.text for caption in split.captions)
    return RelevanceMatrix(weigh(words, split.caption_image, len(split))).dense()


@pytest.fixture
def start(trained, tmp_path):
    def start(*overrides: str) -> Experiment:
        records = trained.config.data.records
        points = f"data.records={records}", *models.POINTS
        return Experiment(models.tiny_config(tmp_path, *points, *overrides))

    return start


def test_batches_carry_the_relevance_of_the_whole_batch(trained, whole):
    split = trained.records.split("train")
    data = trained.config.data

    def batches(part):
        dataset = training_batches(
            split,
            PairSampler(split, 8, 3),
            trained.tokenizer,
            data.image,
            data.text,
            start=2,
            part=part,
            relevance=lambda images, captions: whole[np.ix_(images, captions)],
        )
        assert dataset.element_spec[1]["relevance"].shape == (8 // part[1], 8)
        return [y for _, y in itertools.islice(dataset.as_numpy_iterator(), 2)]

    wholes = batches((0, 1))
    for y in wholes:
        assert y["relevance"].dtype == np.float32
        expected = whole[np.ix_(y["image_id"], y["caption_id"])]
        assert np.count_nonzero(expected) > 8
        np.testing.assert_array_equal(y["relevance"], expected)
    halves = [batches((number, 2)) for number in range(2)]
    for left, right, y in zip(*halves, wholes, strict=True):
        joined = np.concatenate([left["relevance"], right["relevance"]])
        np.testing.assert_array_equal(joined, y["relevance"])


@pytest.mark.usefixtures("eager")
def test_a_loss_sees_the_relevance_of_the_batch():
    plain = models.points()
    model = fits_relevance(plain)
    assert (model.objective.needs_relevance, plain.objective.needs_relevance) == (True, False)
    model.compile()
    x, y = batch(6)
    embedded = model(x)
    scores = model.score(embedded["image"], embedded["caption"])
    tested = model.test_on_batch(x, y, return_dict=True)
    assert "relevance" in y
    expected = np.mean(np.square(np.asarray(scores) - y["relevance"]))
    np.testing.assert_allclose(tested["fit_relevance"], expected, rtol=1e-5)
    del y["relevance"]
    with pytest.raises(ValueError, match="FitRelevance needs the relevance"):
        model.compute_loss(x, y, embedded, training=False)


@pytest.mark.usefixtures("eager")
def test_training_learns_from_the_relevance_of_its_captions(start, monkeypatch):
    few_steps = "train.phases.0.epochs=1", "train.batch_size=20"
    run = start("relevance.measure=cider_d", *few_steps)
    monkeypatch.setattr(
        "keras_xmr.experiments.training.train.build_model",
        lambda *a, **k: fits_relevance(build_model(*a, **k)),
    )
    seen = []
    monkeypatch.setattr(
        "keras_xmr.experiments.training.train.training_batches",
        lambda *a, **k: seen.append(k["relevance"]) or training_batches(*a, **k),
    )
    run.train()
    split = run.records.split("train")
    words = ptb_tokenize(caption.text for caption in split.captions)
    whole = RelevanceMatrix(weigh(words, split.caption_image, len(split), "cider_d")).dense()
    images, captions = np.array([0, 5, 5]), np.array([10, 0, 79, 11])
    np.testing.assert_allclose(
        seen[0](images, captions), whole[np.ix_(images, captions)], rtol=1e-5, atol=1e-6
    )
    with run.folder.training_log.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(np.isfinite(float(row["fit_relevance"])) for row in rows)


def test_nothing_is_weighed_that_no_loss_needs(start, monkeypatch):
    class ReachedError(Exception):
        pass

    def batches(*args, relevance, **options):
        assert relevance is None
        raise ReachedError

    monkeypatch.setattr("keras_xmr.experiments.training.train.training_batches", batches)
    with pytest.raises(ReachedError):
        start().train()


def test_a_tokenizer_that_cannot_run_stops_the_training(start, monkeypatch):
    monkeypatch.setattr(
        "keras_xmr.experiments.training.train.build_model",
        lambda *a, **k: fits_relevance(build_model(*a, **k)),
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"relevance\.tokenizer"):
        start("relevance.tokenizer=java").train()
