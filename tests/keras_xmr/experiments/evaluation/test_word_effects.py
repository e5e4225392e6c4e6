"""Effects of single words on sigma, against a loop over captions that have the word."""

from __future__ import annotations

import math
import string

import numpy as np
import pytest

from keras_xmr.experiments.evaluation.uncertainty.probes import FEWEST, Probes, leave_out_words
from keras_xmr.experiments.reports.uncertainty_report import _words

VALUES = {"a": 0.1, "dog": -0.7, "runs": -0.2, "grass": 0.4, "something": 0.9}


def log_sigma(text):
    """A sum over words, and a term of the whole, so that effects differ between captions."""
    words = [word.strip(string.punctuation).lower() for word in text.split()]
    return sum(VALUES.get(word, 0.0) for word in words) + 0.01 * len(words) ** 2


def embed(texts):
    return {"log_variance": 2 * np.array([[log_sigma(text)] * 3 for text in texts])}


def without_once(text, place):
    words = text.split()
    return " ".join(words[:place] + words[place + 1 :])


def test_the_effect_of_a_word_is_the_ratio_with_and_without_it(random):
    texts = []
    for _ in range(40):
        words = random.permutation([*VALUES, "A", "grass,"])[: int(random.integers(1, 7))]
        texts.append(" ".join(words))
    found = {effect.word: effect for effect in leave_out_words(embed, texts)}
    assert set(found) == set(VALUES)
    for word, effect in found.items():
        changes = []
        for text in texts:
            own = [
                log_sigma(text) - log_sigma(without_once(text, place))
                for place, part in enumerate(text.split())
                if part.strip(",").lower() == word and len(text.split()) > 1
            ]
            if own:
                changes.append(sum(own) / len(own))
        mean = sum(changes) / len(changes)
        spread = math.sqrt(sum((c - mean) ** 2 for c in changes) / (len(changes) - 1))
        error = 1.96 * spread / math.sqrt(len(changes))
        assert effect.captions == len(changes)
        assert effect.ratio == pytest.approx(math.exp(mean))
        assert (effect.low, effect.high) == pytest.approx(
            (math.exp(mean - error), math.exp(mean + error))
        )
    ratios = [effect.ratio for effect in leave_out_words(embed, texts)]
    assert ratios == sorted(ratios)


def test_rare_words_single_words_and_models_without_sigma_have_no_effects():
    assert leave_out_words(embed, ["a dog"] * (FEWEST - 1)) == []
    assert leave_out_words(embed, ["dog"] * 9) == []
    assert leave_out_words(lambda texts: {"mean": np.zeros((len(texts), 3))}, ["a dog"] * 9) == []
    assert [e.word for e in leave_out_words(embed, ["a dog"] * FEWEST)] == ["dog", "a"]


def test_the_picture_has_the_ends_of_the_order_and_the_table_all_words():
    texts = [f"word{number} dog runs" for number in range(30) for _ in range(FEWEST)]
    effects = leave_out_words(embed, texts)
    picture = _words(Probes(words=effects).words)
    assert len(picture.rows) == 32
    labels = [label.get_text() for label in picture.drawing.axes[0].get_yticklabels()]
    assert len(labels) == 14
    assert labels[0] == "dog (150)"
