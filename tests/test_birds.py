"""The study of CUB Captions, on random features of a few classes."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from data_pipelines.caption_features import CaptionFeatures
from keras_xmr.judgements import judge
from keras_xmr.metrics import evaluate_scores
from studies import birds, birds_models, birds_tables


def _split(
    random: np.random.Generator, classes: np.ndarray, centres: np.ndarray
) -> birds_models.Split:
    """Two captions of three words per photo, near the centre of its class."""
    images = np.abs(centres[classes][:, None, :8] + random.normal(size=(len(classes), 4, 8)) / 2)
    owners = np.repeat(np.arange(len(classes)), 2)
    words = centres[classes][owners][:, None, 8:] + random.normal(size=(len(owners), 3, 6)) / 2
    features = CaptionFeatures(
        words.reshape(-1, 6).astype(np.float16), 3 * np.arange(len(owners) + 1)
    )
    means = images.mean(axis=1, keepdims=True), words.mean(axis=1, keepdims=True)
    return birds_models.Split(
        images.astype(np.float16),
        features,
        *(mean.astype(np.float32) for mean in means),
        owners,
        classes,
        lambda images, captions: np.ones((len(images), len(captions)), np.float32),
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> birds_models.Study:
    random = np.random.default_rng(0)
    centres = np.abs(random.normal(size=(9, 14)))
    parts = [np.repeat(np.arange(first, first + 3), 12) for first in (0, 3, 6)]
    options = Namespace(
        cub="birds", work=tmp_path_factory.mktemp("birds"), image_preset="a", text_preset="b"
    )
    settings = birds.make_settings(options)
    small = ["model.dimension=4", "train.phases.0.epochs=1"]
    return birds_models.Study(
        *(_split(random, part, centres) for part in parts),
        lambda row, sets: settings(row, [*small, *sets]),
        dimension=4,
    )


def test_figures_are_those_of_the_library() -> None:
    random = np.random.default_rng(1)
    classes = np.repeat([4, 7, 9], 5)
    owners = np.repeat(np.arange(15), 3)
    scores = random.normal(size=(15, 45))
    figures = birds_models.measure((scores, scores.T), classes, classes[owners])
    truth = judge("classes", owners, [(int(c),) for c in classes], 15)
    summary = evaluate_scores(scores, truth).summary
    expected = [summary[name] for name in birds_tables.METRICS]
    np.testing.assert_allclose(figures.mean(axis=1), expected, rtol=1e-6)


def test_finished_runs_are_not_run_again(study: birds_models.Study, tmp_path: Path) -> None:
    results = tmp_path / "birds.csv"
    birds.run_missing(study, results, ["vse0"])
    before = results.read_text()
    rows = {(line.row, line.labels) for line in birds_tables.read_lines(results)}
    assert {("vse0", "pairs"), ("vse0", "classes"), ("cca_csls", "pairs")} < rows
    birds.run_missing(study, results, ["vse0"])
    assert results.read_text() == before


@pytest.mark.parametrize("name", birds.ROWS)
def test_every_row_begins_at_its_start_and_is_measured(
    study: birds_models.Study, name: str
) -> None:
    row = birds.ROWS[name]
    model, val, _ = study.fit(row, 1e-3, row.values[0], 0)
    assert 0 < val <= 100
    for _, figures in study.tested(model, row):
        assert figures.shape == (6, 3)
        assert np.isfinite(figures).all()
