"""Verdicts calibrated on captions alone, where people have judged nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from keras_xmr.search import calibration
from keras_xmr.search.calibration import (
    SplitQueries,
    example_caption,
)

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


@pytest.mark.parametrize(
    ("captions", "example"), [(["1", "a bb", "a blue dog", "a dog"], "a dog"), (["12", "3"], "3")]
)
def test_the_example_of_a_search_has_a_word_if_a_caption_has(monkeypatch, captions, example):
    records = SimpleNamespace(split=lambda _: SimpleNamespace(texts=captions))
    monkeypatch.setattr(calibration.Records, "open", lambda _: records)
    data = SimpleNamespace(is_prepared=True, records=None)
    assert example_caption(SimpleNamespace(config=SimpleNamespace(data=data))) == example
