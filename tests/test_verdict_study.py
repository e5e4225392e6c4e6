"""The study of the verdict of a search, on made-up photos."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from benchmark_modules import benchmark

from keras_xmr.utils.vectors import unit_rows

study = benchmark("verdict", "studies")

PHOTOS, TOPICS = {"train": 400, "val": 120, "test": 100}, 40


@pytest.fixture
def data(study, random, monkeypatch):
    """Photos of topics, with two captions each that are near the photo."""
    monkeypatch.setattr(study, "SIZES", (60, 300))
    count = sum(PHOTOS.values())
    topic = random.integers(TOPICS, size=count)
    photos = unit_rows(random.normal(size=(TOPICS, 16)))[topic]
    photos = unit_rows(photos + 0.1 * random.normal(size=photos.shape)).astype(np.float32)
    owner = np.repeat(np.arange(count), 2)
    noise = 0.1 * random.normal(size=(len(owner), 16)).astype(np.float32)
    captions = unit_rows(photos[owner] + noise)
    judged = [
        (photo, caption, topic[photo] == topic[owner[caption]])
        for caption in np.flatnonzero(owner >= PHOTOS["train"] + PHOTOS["val"])[::2]
        for photo in random.integers(count - PHOTOS["test"], count, size=12)
    ]
    model = SimpleNamespace(score=lambda gallery, query: gallery["mean"] @ query["mean"].T)
    return study.Collection(
        model,
        {"mean": photos},
        {"mean": captions},
        captions,
        captions,
        owner,
        np.repeat(list(PHOTOS), list(PHOTOS.values())),
        [f"a photo of topic{topic[photo]} with things" for photo in owner],
        np.array(judged, int),
    )


def embedded_as(captions: np.ndarray, texts: list[str]):
    """Embeds a text as the captions with its topic, or as noise."""

    def embed(wanted: list[str]) -> dict[str, np.ndarray]:
        found = []
        for number, text in enumerate(wanted):
            topic = re.search(r"topic\d+", text)
            rows = [r for r, known in enumerate(texts) if topic and topic[0] in known.split()]
            noise = np.random.default_rng(number).normal(size=captions.shape[1])
            found.append(captions[rows].mean(axis=0) if rows else noise)
        return {"mean": unit_rows(np.array(found)).astype(np.float32)}

    return embed


@pytest.fixture
def test(study, data, monkeypatch):
    monkeypatch.setattr(
        study.Collection,
        "embed",
        lambda self, texts: embedded_as(data.sentences, data.texts)(texts),
    )
    return study.Test(data)


def test_a_gallery_has_the_photo_and_one_without_right_ones_lacks_it(test):
    for query, size in ((0, 60), (7, 300)):
        columns = test.gallery(query, size)
        assert len(set(columns)) == size
        assert columns[0] == query
        left = test.absent(query, columns, "similar")
        assert query not in left
        assert not np.any(np.nan_to_num(test.judged[query, left]) > 0)
        assert np.all(test.plain[query, left] < test.limits["similar"])


def test_scores_are_those_of_the_model(test, data):
    wanted = data.images["mean"][test.photos] @ data.captions["mean"][test.queries].T
    np.testing.assert_allclose(test.scores.raw, wanted.T, rtol=1e-5)


@pytest.mark.slow
def test_absent_queries_are_called_absent_more_often_than_present_ones(study, test, data):
    model = study.calibrated(data)
    rows = [line.strip("| ").split(" | ") for line in study.presence_table(model, test)[2:]]
    assert [row[0] for row in rows[:2]] == ["60", "300"]
    present, similar = (float(rows[0][column].split()[0]) for column in (1, 2))
    assert present < 20 < similar
