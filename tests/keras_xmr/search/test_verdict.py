"""How many of the first results are right, and whether any is, on made-up scores."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import TypeAdapter

from keras_xmr.search.verdict import (
    FEWEST,
    Background,
    SimilarityScale,
    VerdictModel,
    calibrate_verdict,
    caption_similarity,
    count_distribution,
    likely_right,
    unit_vectors,
)
from keras_xmr.search.vocabulary import Vocabulary, short_queries

REFERENCE = 256
FOUR = np.full(1000, 4)


def world(random, queries, photos, share=0.01, effect=3.0):
    """Scores of queries with photos: normal, and higher by the effect where a photo is right.

    The scale and the level of a query are its own, and so is how well its right photos score.
    """
    right = random.random((queries, photos)) < share
    own = np.arange(queries) % photos
    right[np.arange(queries), own] = True
    level, scale = random.normal(size=(queries, 1)), random.uniform(0.5, 2, (queries, 1))
    skill = effect * (1 + 0.15 * random.normal(size=(queries, 1)))
    scores = level + scale * (random.normal(size=(queries, photos)) + skill * right)
    reference = level + scale * random.normal(size=(queries, REFERENCE))
    return scores, reference, right, own


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    scores, reference, right, own = world(random, 1000, 400)
    return calibrate_verdict(
        scores,
        reference,
        FOUR[: len(own)],
        right.astype(float),
        ~right,
        own,
        own >= 0,
        complete=True,
    )


def said(model, scores, reference, first=20):
    """Of each query, whether it is called absent, the count, and the places of the first."""
    background = Background.fit(reference, FOUR[: len(reference)])
    standard = (scores - background.mean[:, None]) / background.deviation[:, None]
    for values, features in zip(standard, background.features, strict=True):
        top = np.argsort(-values)[:first]
        best, gallery = float(values[top[0]]), len(values)
        chances = model.probabilities(values[top], features, gallery)
        yield model.is_absent(best, features, gallery), model.count(chances), top


@pytest.mark.slow
@pytest.mark.parametrize("photos", [100, 400, 2000, 20_000])
def test_counts_are_within_their_interval_at_every_size(model, photos):
    random = np.random.default_rng(1)
    within, absent, stated, true = [], [], [], []
    for _ in range(3 if photos < 20_000 else 1):
        scores, reference, right, _ = world(random, 100, photos)
        for row, (is_absent, count, top) in enumerate(said(model, scores, reference)):
            found = right[row, top].sum()
            within.append(count.low <= found <= count.high)
            absent.append(is_absent)
            stated.append(count.expected)
            true.append(found)
    assert np.mean(within) > 0.85
    assert np.mean(absent) < 0.14
    assert np.mean(stated) == pytest.approx(np.mean(true), rel=0.15, abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("photos", [100, 400, 2000, 20_000])
def test_queries_without_a_right_photo_are_called_absent(photos):
    random = np.random.default_rng(2)
    scores, reference, right, own = world(random, 1000, 400, effect=5.0)
    model = calibrate_verdict(
        scores, reference, FOUR[: len(own)], right.astype(float), ~right, own, own >= 0
    )
    called = []
    for effect in (0.0, 5.0):
        scores, reference, _, _ = world(random, 100, photos, effect=effect)
        called.append(np.mean([absent for absent, _, _ in said(model, scores, reference)]))
    assert called[0] > 0.7
    assert called[1] < 0.16


def test_the_distribution_of_a_count_is_that_of_all_outcomes(random):
    chances = random.random(6)
    expected = np.zeros(7)
    for outcome in itertools.product([0, 1], repeat=6):
        expected[sum(outcome)] += np.prod(np.where(outcome, chances, 1 - chances))
    np.testing.assert_allclose(count_distribution(chances), expected, atol=1e-12)


def test_queries_that_differ_make_intervals_wider(random):
    chances = random.random(20)
    alone, together = count_distribution(chances), count_distribution(chances, 1.5)
    counts = np.arange(21)
    assert together.sum() == pytest.approx(1)
    assert counts @ together == pytest.approx(chances.sum(), abs=0.3)
    assert counts**2 @ together - (counts @ together) ** 2 > 2 * (
        counts**2 @ alone - (counts @ alone) ** 2
    )


def test_certain_photos_are_counted_certainly(model):
    count = model.count(np.array([1.0, 1.0, 1.0, 0.0]))
    assert (count.low, count.high, count.of) == (3, 3, 4)
    assert model.count(np.empty(0)).high == 0


def test_it_is_saved_as_json(model):
    again = TypeAdapter(VerdictModel).validate_python(json.loads(json.dumps(asdict(model))))
    assert again == model
    assert again.complete
    assert again.queries == 1000


def test_few_photos_calibrate_nothing():
    random = np.random.default_rng(3)
    scores, reference, right, own = world(random, 100, FEWEST - 1)
    assert (
        calibrate_verdict(
            scores, reference, FOUR[: len(own)], right.astype(float), ~right, own, own >= 0
        )
        is None
    )


@pytest.mark.slow
def test_scores_of_another_scale_say_the_same():
    random = np.random.default_rng(4)
    scores, reference, right, own = world(random, 300, 100)
    one, other = (
        calibrate_verdict(
            a * scores + b,
            a * reference + b,
            FOUR[:300],
            right.astype(float),
            ~right,
            own,
            own >= 0,
        )
        for a, b in ((1, 0), (100, -7))
    )
    plain = list(said(one, scores[:20], reference[:20]))
    scaled = list(said(other, 100 * scores[:20] - 7, 100 * reference[:20] - 7))
    for (absent, count, _), (again, same, _) in zip(plain, scaled, strict=True):
        assert absent == again
        assert count.expected == pytest.approx(same.expected, rel=1e-3)


def test_similarity_is_the_mean_of_the_nearest_captions():
    random = np.random.default_rng(7)
    photo_of = np.array([0, 0, 0, 1, 2, 2])
    captions, queries = (unit_vectors(random.normal(size=(n, 8))) for n in (6, 4))
    found = caption_similarity(queries, captions, photo_of)
    for query, photo in itertools.product(range(4), range(3)):
        cosines = sorted(queries[query] @ captions[c] for c in np.flatnonzero(photo_of == photo))
        assert found[query, photo] == pytest.approx(np.mean(cosines[-2:]), abs=1e-6)


def test_captions_of_one_photo_make_the_scale():
    random = np.random.default_rng(8)
    topics = random.normal(size=(30, 16))
    photo_of = np.repeat(np.arange(30), 5)
    captions = unit_vectors(topics[photo_of] + 0.5 * random.normal(size=(150, 16)))
    scale = SimilarityScale.from_captions(captions, photo_of)
    right, wrong = likely_right(caption_similarity(captions, captions, photo_of), scale)
    own = photo_of[:, None] == np.arange(30)
    assert right[own].mean() > 0.45
    assert right[~own].mean() < 0.02
    assert wrong[~own].mean() > 0.9
    assert not (wrong & own).any()
    assert SimilarityScale.from_captions(captions[:5], np.arange(5)) is None


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("two dogs in the snow", ()),
        ("a dog and a giraffe", ("giraffe",)),
        ("ein hund im schnee", ("ein", "hund", "im", "schnee")),
        ("a brown dog runs after a blorp", ()),
        ("the", ()),
    ],
)
def test_words_that_training_has_not_seen(text, missing):
    captions = ["a brown dog runs in the snow"] * 5 + ["two kids play after a game and rest"] * 5
    vocabulary = Vocabulary.count([*captions, *["the man and the woman"] * 490, "a giraffe"])
    assert vocabulary.unfamiliar(text) == missing
    assert "giraffe" not in vocabulary.counts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ein Hund im Schnee", "another language"),
        ("deux chiens", "another language"),
        ("ein Mann in der Stadt", "another language"),
        ("собака на снегу", "written in Cyrillic letters"),
        ("雪の中の犬", "written in Chinese and Hiragana letters"),
        ("a photo of a 犬", ""),
        ("a brown dog in the snow", ""),
        ("a brown blorp in the snow", ""),
        ("giraffe", ""),
        ("the", ""),
        ("2 3", ""),
    ],
)
def test_a_query_in_another_language_is_said_to_be_one(text, says):
    captions = ["a brown dog runs in the snow"] * 5 + ["two kids play after a game and rest"] * 5
    vocabulary = Vocabulary.count(
        [*captions, *["the man and the woman in a photo of a city"] * 490]
    )
    found = vocabulary.foreign(text)
    assert says in found
    assert bool(says) == bool(found)
    assert "another" not in found or "no word of the query is in 3 captions" in found


def test_short_queries_are_parts_of_captions():
    captions = ["A brown dog runs in the snow.", "a dog", "Two kids on a beach", "a dog on a beach"]
    photo_of = np.array([0, 0, 1, 2])
    seen = set()
    for seed in range(50):
        found = short_queries(captions, photo_of, seed)
        for row, (text, photo) in enumerate(zip(found.texts, found.photos, strict=True)):
            assert 1 <= len(text.split()) <= 3
            assert not {"a", "the", "on", "in"} & {text.split()[0], text.split()[-1]}
            assert found.right[row, photo]
            assert not (found.right[row] & found.wrong[row]).any()
            seen.add(text)
            if text == "dog":
                assert found.right[row].tolist() == [True, False, True]
                assert found.wrong[row].tolist() == [False, True, False]
    assert {"dog", "snow", "kids", "beach"} <= seen
