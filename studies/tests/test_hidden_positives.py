"""Hidden positives on photos: batches, gradients, and a training on made-up classes."""

from __future__ import annotations

import numpy as np
import pytest

from studies import hidden_positives as study


def vectors(random, classes=8, photos=6, captions=3):
    """Photos and captions near the centre of their class, for three splits."""
    centres = random.normal(size=(classes, 12))
    splits = []
    for _ in range(3):
        labels = np.repeat(np.arange(classes), photos)
        owner = np.repeat(np.arange(len(labels)), captions)
        images = centres[labels] + random.normal(size=(len(labels), 12)) / 2
        texts = centres[labels[owner]] + random.normal(size=(len(owner), 12)) / 2
        splits.append((images, texts, owner, labels))
    return splits


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(study, "BATCH", {"cub": 8, "flickr8k": 12})
    monkeypatch.setattr(study, "STEPS", {"cub": 60, "flickr8k": 60})
    monkeypatch.setattr(study, "DIMENSION", 6)
    monkeypatch.setattr(study, "COMPONENTS", 8)


def task(data, copies, kind, loss="triplet, hardest", start="random"):
    return study.Task(data, start, loss, copies, kind)


@pytest.mark.usefixtures("small")
def test_batches_have_that_number_of_other_photos_of_each_class(random):
    maps = study.Maps("cub", vectors(random))
    classes = maps.classes[0]
    for copies in (1, 2, 4):
        for images, captions, same in maps.class_batches(task("cub", copies, "known"), random, 3):
            assert len(set(images)) == 8
            assert (maps.owners[0][captions] == images).all()
            assert (np.bincount(classes[images])[np.unique(classes[images])] == copies).all()
            assert (same.sum(axis=1) == copies).all()


def test_a_caption_has_no_copy_of_its_photo_as_a_negative(random):
    maps = [random.normal(size=(5, 4)), random.normal(size=(5, 4))]
    images = np.array([0, 0, 1, 1])
    batch = random.normal(size=(2, 5))[images], random.normal(size=(4, 5))
    loss = study.LOSSES["triplet, hardest"]
    hidden = np.eye(4, dtype=bool)
    of = loss.direction(study.hardest_negative.STEPS)
    units = [x @ m for x, m in zip(batch, maps, strict=True)]
    units = [u / np.linalg.norm(u, axis=1, keepdims=True) for u in units]
    scores = units[0] @ units[1].T
    _, once = np.unique(images, return_index=True)
    own = images[:, None] == images[once]
    expected = of(scores, hidden)
    expected[once] += of(scores[once].T, own).T
    found = study._gradients(maps, batch, hidden, loss, study.hardest_negative.STEPS, images)
    inside = []
    for x, m, unit, up in zip(
        batch, maps, units, (expected @ units[1], expected.T @ units[0]), strict=True
    ):
        length = np.linalg.norm(x @ m, axis=1, keepdims=True)
        inside.append(x.T @ ((up - unit * (up * unit).sum(axis=1, keepdims=True)) / length))
    for one, other in zip(found, inside, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("data", study.COPIES)
@pytest.mark.parametrize("start", study.STARTS)
def test_a_training_learns_and_is_measured_in_both_directions(random, data, start):
    maps = study.Maps(data, vectors(random))
    run = study.Run("test", task(data, 2, "hidden", start=start), 1, 0.1)
    found = maps.measure(maps.fit(run), 2)
    assert [len(side) for side in found] == ([8, 8] if data == "cub" else [3, 3])
    random_maps = [random.normal(size=m.shape) for m in maps.cca]
    assert study._both(found) > study._both(maps.measure(random_maps, 2)) + 5


def test_r_precision_by_class_is_that_of_the_library(random):
    from keras_xmr.judgements import judge
    from keras_xmr.metrics import evaluate_scores

    classes, owner = np.repeat([3, 5, 8], 4), np.repeat(np.arange(12), 2)
    scores = random.normal(size=(12, 24))
    truth = judge("classes", owner, [(int(c),) for c in classes], 12)
    values = evaluate_scores(scores, truth).image_to_text.values["r_precision"]
    found = study.r_precision_by_class(scores, classes, classes[owner])
    expected = [100 * values[classes == label].mean() for label in (3, 5, 8)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.usefixtures("small")
def test_finished_runs_are_not_run_again(random, tmp_path, monkeypatch):
    maps, fitted = study.Maps("cub", vectors(random)), []
    monkeypatch.setattr(study.Maps, "fit", lambda self, run: fitted.append(run) or self.cca)
    study.run_missing(maps, tmp_path / "runs.csv", ["CCA"])
    count = len(fitted)
    study.run_missing(maps, tmp_path / "runs.csv", ["CCA"])
    # Three rates for the validation split, and a seed each for the test split.
    assert count == len(fitted) == 20 * (3 + len(study.SEEDS["cub"]))
    results = study.read_results(tmp_path / "runs.csv")
    one, other = (task("cub", 2, kind, start="CCA") for kind in study.KINDS)
    assert study.difference(results, None, (1, one), (-1, other)).value == 0
