"""What the figures of a report mean for the photos of its reader."""

from __future__ import annotations

from keras_xmr.experiments.evaluation.meaning import (
    EVERYDAY,
    meaning_lines,
    missing_words,
    what_to_do,
)

CAPTIONS = {"a": 900, "dog": 40, "the": 500, "beaches": 3, "babies": 2, "is": 100, "man": 90}


def test_everyday_words_that_no_caption_has_are_named():
    missing = missing_words(CAPTIONS)
    assert {"cake", "giraffe", "kitchen"} <= set(missing)
    assert not {"dog", "beach", "baby", "man"} & set(missing), "plurals count"
    assert len(missing) == len(EVERYDAY.split()) - 4
    first, second = meaning_lines(74, CAPTIONS)
    assert "74 photos" in first
    assert second.startswith(f"{len(missing)} of {len(EVERYDAY.split())} everyday words")
    assert second.count(",") < 40, "the first of them"
    every = CAPTIONS | dict.fromkeys(EVERYDAY.split(), 1)
    assert len(meaning_lines(74, every)) == 1


def test_other_languages_are_not_compared_with_english_words():
    german = {"ein": 500, "hund": 40, "am": 60, "strand": 20, "in": 9}
    assert missing_words(german) == []


def test_the_words_are_sorted_and_distinct():
    words = EVERYDAY.split()
    assert words == sorted(set(words))


def test_what_a_user_can_do_is_more_than_advice():
    assert what_to_do(["Add photos."], False) == ["Add photos."]
    first, *more = what_to_do(["Add photos."], True)
    assert first == "Add photos."
    assert any("worst queries" in line for line in more)
    assert any("CLIP" in line for line in more)
