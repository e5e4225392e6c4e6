"""Verdicts calibrated on captions alone, where people have judged nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from keras_xmr.search import calibration
from keras_xmr.search.calibration import (
    SplitQueries,
    calibrate_split_verdict,
    example_caption,
)
from keras_xmr.search.verdict import Background

THINGS = ("dog", "cat", "boat", "tree", "house", "horse", "ball", "car")
PLACES = ("snow", "sand", "grass", "water")


class Model:
    """Knows things and places, and some noise."""

    config = SimpleNamespace(evaluation=SimpleNamespace(batch_size=64))

    def embed_texts(self, texts):
        random = np.random.default_rng(len(texts[0]))
        found = [[word in text.split() for word in THINGS + PLACES] for text in texts]
        noise = 0.1 * random.normal(size=(len(texts), 12))
        return {"mean": (np.array(found) + noise).astype(np.float32)}

    def score(self, images, captions):
        return images["mean"] @ captions["mean"].T


def split(photos, captions=3):
    random = np.random.default_rng(photos)
    things, places = random.integers(8, size=photos), random.integers(4, size=photos)
    shown = np.concatenate([np.eye(8)[things], np.eye(4)[places]], axis=1)
    images = {"mean": (shown + 0.2 * random.normal(size=shown.shape)).astype(np.float32)}
    own = np.repeat(np.arange(photos), captions)
    texts = [f"a {THINGS[things[p]]} in the {PLACES[places[p]]}" for p in own]
    pairs = own[:, None] == np.arange(photos)
    embedded = Model().embed_texts(texts)
    truth = (things[own][:, None] == things) & (places[own][:, None] == places)
    return SplitQueries(Model(), images, embedded, pairs, pairs, own, texts, False), truth


@pytest.mark.slow
def test_photos_with_like_captions_count_as_right():
    asked, truth = split(300)
    scores, model = asked.scores, asked.model
    reference = {"mean": split(200)[0].images["mean"]}
    verdict = calibrate_split_verdict(asked, reference)
    assert not verdict.complete
    assert np.isfinite(verdict.cutoff)
    against = Background.fit(model.score(reference, asked.captions).T, np.full(len(scores), 5))
    standard = (scores - against.mean[:, None]) / against.deviation[:, None]
    stated, found = [], []
    for query in range(0, 900, 9):
        top = np.argsort(-standard[query])[:20]
        chances = verdict.probabilities(standard[query, top], against.features[query], 300)
        stated.append(verdict.count(chances).expected)
        found.append(truth[query, top].sum())
    # Of 20 the annotation knows one alone.
    assert np.mean(found) > 6
    assert np.mean(stated) == pytest.approx(np.mean(found), rel=0.5)


@pytest.mark.parametrize(("photos", "captions"), [(300, 1), (30, 3)])
def test_nothing_is_said_where_nothing_tells_what_is_right(photos, captions):
    asked, _ = split(photos, captions)
    reference = {"mean": asked.images["mean"]}
    assert calibrate_split_verdict(asked, reference) is None


@pytest.mark.parametrize(
    ("captions", "example"), [(["1", "a bb", "a blue dog", "a dog"], "a dog"), (["12", "3"], "3")]
)
def test_the_example_of_a_search_has_a_word_if_a_caption_has(monkeypatch, captions, example):
    records = SimpleNamespace(split=lambda _: SimpleNamespace(texts=captions))
    monkeypatch.setattr(calibration.Records, "open", lambda _: records)
    data = SimpleNamespace(is_prepared=True, records=None)
    assert example_caption(SimpleNamespace(config=SimpleNamespace(data=data))) == example
