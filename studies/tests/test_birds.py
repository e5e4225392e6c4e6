"""The study of CUB Captions, on random features of a few classes, and the page of its results."""

from argparse import Namespace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from tiny_presets import bert, resnet

from keras_xmr.encoders import InputSpec
from keras_xmr.judgements import judge
from keras_xmr.metrics import evaluate_scores
from studies import birds, birds_tables


def _split(random, classes, centres):
    """Two captions of three words per photo, near the centre of its class."""
    owners = np.repeat(np.arange(len(classes)), 2)
    images = np.abs(centres[classes][:, None, :8] + random.normal(size=(len(classes), 4, 8)) / 2)
    words = centres[classes[owners]][:, None, 8:] + random.normal(size=(len(owners), 3, 6)) / 2
    return birds.Split(
        images.astype(np.float16),
        SimpleNamespace(read=words.astype(np.float32).__getitem__),
        images.mean(axis=1, keepdims=True).astype(np.float32),
        words.mean(axis=1, keepdims=True).astype(np.float32),
        owners,
        classes,
        lambda images, captions: np.ones((len(images), len(captions)), np.float32),
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    random = np.random.default_rng(0)
    centres = np.abs(random.normal(size=(9, 14)))
    parts = [np.repeat(np.arange(first, first + 3), 12) for first in (0, 3, 6)]
    work = tmp_path_factory.mktemp("birds")
    options = Namespace(cub="birds", work=work, image_preset="a", text_preset="b")
    settings = birds.make_settings(options)
    small = ["model.dimension=4", "train.phases.0.epochs=1"]
    splits = [_split(random, part, centres) for part in parts]
    return birds.Study(*splits, lambda row, sets: settings(row, [*small, *sets]), 4)


def test_figures_are_those_of_the_library():
    classes, owners = np.repeat([4, 7, 9], 5), np.repeat(np.arange(15), 3)
    scores = np.random.default_rng(1).normal(size=(15, 45))
    figures = birds.measure((scores, scores), classes, owners)
    truth = judge("classes", owners, [(int(c),) for c in classes], 15)
    summary = evaluate_scores(scores, truth).summary
    expected = [summary[name] for name in birds_tables.METRICS]
    np.testing.assert_allclose(figures.mean(axis=1), expected, rtol=1e-6)


@pytest.mark.slow
def test_finished_runs_are_not_run_again(study, tmp_path, monkeypatch):
    row = birds.ROWS["vse0"]
    model, val, _ = study.fit(row, 1e-3, row.values[0], 0)
    assert 0 < val <= 100
    trained = []

    def fit(row, rate, knob, seed):
        trained.append((rate, knob, seed))
        return model, 50 - abs(np.log(rate / 1e-4)), 1

    monkeypatch.setattr(study, "fit", fit)
    results = tmp_path / "birds.csv"
    birds.run_missing(study, results, ["vse0"])
    lines = birds_tables.read_lines(results)
    rows = {(line.row, line.labels) for line in lines}
    assert {("vse0", "pairs"), ("cca_csls", "pairs")} < rows
    assert {line.rate for line in lines if line.kind == "test" and line.seed} == {1e-4}
    before, count = results.read_text(), len(trained)
    birds.run_missing(study, results, ["vse0"])
    assert (results.read_text(), len(trained)) == (before, count)
    runs = birds_tables.runs_of(lines)
    assert len(runs["vse0", "pairs"]) == len(birds.SEEDS)


@pytest.mark.parametrize("name", birds.ROWS)
def test_every_row_has_a_config(study, name):
    row = birds.ROWS[name]
    for value in row.values:
        study.settings(row, [*row.sets, f"{row.knob}={value}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pcme_daa", "dvse_k2"])
def test_a_row_is_trained_and_measured(study, name):
    row = birds.ROWS[name]
    model, val, _ = study.fit(row, 1e-3, row.values[0], 0)
    assert 0 < val <= 100
    for _, figures in study.tested(model, row):
        assert figures.shape == (6, 3)
        assert np.isfinite(figures).all()


@pytest.mark.slow
def test_freed_stages_begin_as_the_frozen_encoder(study, tmp_path):
    text, image = bert(tmp_path / "text"), resnet(tmp_path / "image")
    encoders = [
        f"model.text.encoder.preset={text}",
        "model.text.encoder.layers=[1, 2]",
        f"model.image.encoder.preset={image}",
        "model.image.encoder.levels=[2, 3]",
        "data.image.size=64",
        "data.image.resize=64",
    ]
    config = study.settings(birds.ROWS["info_nce_freed_text"], encoders)
    pixels = keras.Input((64, 64, 3), dtype="uint8")
    whole, _ = config.model.image.encoder.build().features(pixels, InputSpec(image_size=64))
    photos = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8)
    first, rest = birds.split_images(config)
    expected = keras.Model(pixels, whole)(photos)
    np.testing.assert_allclose(rest(first(photos), training=True), expected, rtol=1e-4, atol=1e-4)

    ids = keras.Input((None,), dtype="int32")
    words, mask = config.model.text.encoder.build().features(ids, InputSpec())
    features, given = keras.Model(ids, [words, mask])(np.array([[5, 6, 7], [8, 9, -1]], np.int32))
    found = birds.last_layers(config, features, given)
    np.testing.assert_allclose(found[0], features[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1, :2], features[1, :2], rtol=1e-4, atol=1e-4)
