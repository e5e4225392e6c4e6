"""The study of clicks, on a made-up split."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark

from keras_xmr.search.learning import Marked
from keras_xmr.utils.vectors import unit_rows

study = benchmark("flickr8k_clicks", "studies")

PHOTOS, PER_PHOTO = 40, 2


@pytest.fixture
def split(study, random):
    """Captions that the model does not place well, but that a rotation would."""
    photos = unit_rows(random.normal(size=(PHOTOS, 5)))
    owner = np.repeat(np.arange(PHOTOS), PER_PHOTO)
    captions = unit_rows(photos[owner] + 0.4 * random.normal(size=(len(owner), 5)))
    judged = (captions @ photos.T > 0.5).astype(np.float32)
    judged[random.random(judged.shape) < 0.3] = np.nan
    return study.Test(photos, captions, owner, judged)


def test_halves_share_neither_photos_nor_captions(split):
    (photos, captions), (others, other_captions) = split.half(False), split.half(True)
    assert len(photos) == len(others) == PHOTOS // 2
    assert not set(photos) & set(others)
    assert not set(captions) & set(other_captions)
    assert set(split.owner[captions]) == set(photos)


def test_clicks_are_judged_photos_among_the_first_of_their_half(study, split):
    marked, captions = split.clicks(30, draw=1)
    photos, asked = split.half(False)
    assert len(marked.right) == 30
    assert set(captions) <= set(asked)
    for query, photo, right in zip(marked.query_of, marked.photo_of, marked.right, strict=True):
        row = int(np.argmax(split.photos @ marked.photos[photo]))
        scores = split.photos[photos] @ split.captions[captions[query]]
        assert row in photos[np.argsort(-scores)[: study.LOOKED_AT]]
        assert split.judged[captions[query], row] == right
    again, _ = split.clicks(30, draw=1)
    np.testing.assert_array_equal(again.right, marked.right)


def test_r_precision_counts_judged_photos_alone(study):
    scores, judged = np.array([5.0, 4, 3, 2, 1]), np.array([0, np.nan, 1, 1, 0])
    assert study.judged_precision(scores, judged) == 0.5
    assert np.isnan(study.judged_precision(scores, np.array([1, 1, np.nan, 1, 1])))


def test_measures_are_those_of_loops(split):
    found = split.measure(lambda queries: queries)
    photos, captions = split.half(True)
    for place, photo in enumerate(photos):
        scores = split.photos[photos] @ split.captions[captions].T
        best = max(
            np.sum(np.delete(scores[place], own) >= scores[place, own].max())
            for own in [np.flatnonzero(split.owner[captions] == photo)]
        )
        assert found["i2t"][place] == sum(100 * (best < k) for k in (1, 5, 10))
        ranks = [np.sum(scores[:, c] > scores[place, c]) for c in own_captions(split, photo)]
        expected = np.mean([sum(100 * (rank < k) for k in (1, 5, 10)) for rank in ranks])
        assert found["t2i"][place] == pytest.approx(expected, abs=1e-3)


def own_captions(split, photo):
    return np.flatnonzero(split.owner[split.half(True)[1]] == photo)


def test_rocchio_moves_as_its_formula(study, monkeypatch):
    marked = Marked(
        np.eye(3),
        np.eye(3),
        np.array([0, 0, 1]),
        np.array([1, 2, 0]),
        np.array([True, False, True]),
    )
    monkeypatch.setattr(study, "_best", lambda marked, fitted, *rest, **more: fitted(marked, 0.5))
    query = study.rocchio(marked)
    np.testing.assert_allclose(query(np.eye(3)[:1]), [[1, 0.5, -0.5]])


@pytest.mark.slow
def test_results_become_tables_and_a_figure(study, split, monkeypatch, tmp_path):
    monkeypatch.setattr(study, "CLICKS", (12, 24))
    monkeypatch.setattr(study, "DRAWS", 2)
    monkeypatch.setattr(study, "_RESAMPLES", 50)
    results = list(study.study(split, "made up"))
    assert len(results) == 1 + 2 * 2 * 3
    for result in results[1:]:
        assert ("t2i" in result) == result["is_changed"], "what is unchanged has no figures"
    lines = list(study.tables(results))
    assert lines[0].startswith("\n`made up`: RSUM ")
    assert len(lines) == 3 + 2 * 3
    rsum, *_ = study.differences(results, "made up", "logistic", 24)
    assert rsum.low <= rsum.value <= rsum.high
    study.draw(results, tmp_path / "clicks.png")
    assert (tmp_path / "clicks.png").stat().st_size
