"""The words of the captions of training, and short queries made of such words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

FEWEST_CAPTIONS = 3
"""Minimum number of captions with a word that the model is taken to know."""

_NAMES = {"CJK": "Chinese"}


class Vocabulary:
    """The words of the captions of training.

    Args:
        counts: Number of captions with each word.
        captions: Number of captions.
    """

    _COMMON, _MISSING = 0.02, 0.5

    def __init__(self, counts: Mapping[str, int], captions: int) -> None:
        self.counts = dict(counts)
        self.captions = captions

    @classmethod
    def count(cls, captions: Iterable[str]) -> Vocabulary:
        """Counts the words of captions."""
        counts: Counter[str] = Counter()
        total = 0
        for caption in captions:
            total += 1
            counts.update(set(split_words(caption)))
        return cls({w: n for w, n in sorted(counts.items()) if n >= FEWEST_CAPTIONS}, total)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Words and counts as arrays, to be saved."""
        words, counts = list(self.counts), list(self.counts.values())
        return {
            "words": np.array(words, np.str_),
            "counts": np.array(counts, np.int64),
            "captions": np.array(self.captions),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Vocabulary:
        """Restores the result of `as_arrays`."""
        pairs = zip(arrays["words"].tolist(), arrays["counts"].tolist(), strict=True)
        return cls(dict(pairs), int(arrays["captions"]))

    def unfamiliar(self, text: str) -> tuple[str, ...]:
        """Words of too few training captions, if they are at least half of the rarer words."""
        words = [w for w in dict.fromkeys(split_words(text)) if not self._is_common(w)]
        missing = tuple(word for word in words if not self._is_known(word))
        return missing if missing and len(missing) >= self._MISSING * len(words) else ()

    def foreign(self, text: str) -> str:
        """Detects a text in another language than the captions.

        Returns:
            A sentence if the text has other letters, or at least two words and hardly one of
            training; else empty.
        """
        scripts = Counter(filter(None, map(_script, text)))
        strange = [script for script, _ in scripts.most_common() if script not in self._scripts]
        if self._scripts and sum(scripts[script] for script in strange) > scripts.total() / 2:
            names = " and ".join(_NAMES.get(script, script.capitalize()) for script in strange)
            return f"The query is written in {names} letters, unlike the captions of training."
        words = [word for word in dict.fromkeys(split_words(text)) if word.isalpha()]
        rare = [word for word in words if not self._is_common(word)]
        if len(rare) < 2 or len(rare) <= len(words) / 2 or any(map(self._is_known, rare)):
            return ""
        return (
            f"Except common words, no word of the query is in {FEWEST_CAPTIONS} captions of "
            "training or more: it may be in another language."
        )

    @cached_property
    def _scripts(self) -> set[str]:
        return set(filter(None, map(_script, "".join(self.counts))))

    def _is_common(self, word: str) -> bool:
        return self.counts.get(word, 0) >= max(self._COMMON * self.captions, FEWEST_CAPTIONS)

    def _is_known(self, word: str) -> bool:
        return any(form in self.counts for form in (word, f"{word}s", word.removesuffix("s")))


def _script(character: str) -> str:
    """The script of a letter, as the first word of its name in Unicode: LATIN; else empty."""
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""


def split_words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


_LINKING_WORDS = """
a an and are as at be by for from has her his in into is it its of on onto or over that the their
them there through to two up while who with wearing
"""
_LINKING = frozenset(_LINKING_WORDS.split())
"""English words at which no short query begins or ends."""

_LONGEST = 3


@dataclass(frozen=True, eq=False)
class ShortQueries:
    """Parts of captions as queries.

    Attributes:
        texts: The queries.
        photos: The photo of each query, (queries,).
        right: Photos with a caption that has all words, bool (queries, photos).
        wrong: Photos with none of them in their captions, bool (queries, photos).
    """

    texts: list[str]
    photos: np.ndarray
    right: np.ndarray
    wrong: np.ndarray


def short_queries(captions: Sequence[str], photo_of: np.ndarray, seed: int = 0) -> ShortQueries:
    """Makes a query per photo: one to three successive words of one of its captions.

    A photo is right if one of its captions has all words but linking ones. Others may show the
    same without a caption of it: these count as wrong.

    Args:
        captions: The captions of all photos.
        photo_of: The photo per caption, (captions,), from 0 on.
        seed: Of the choice.
    """
    random = np.random.default_rng(seed)
    words = [split_words(caption) for caption in captions]
    captions_with: dict[str, set[int]] = {}
    for number, caption_words in enumerate(words):
        for word in caption_words:
            captions_with.setdefault(word, set()).add(number)
    chosen: dict[int, list[str]] = {}
    for number in random.permutation(len(captions)).tolist():
        part = _part(words[number], random)
        if part and int(photo_of[number]) not in chosen:
            chosen[int(photo_of[number])] = part
    photos = np.array(sorted(chosen), np.int64)
    right = np.zeros((len(photos), int(photo_of.max()) + 1), bool)
    wrong = np.ones_like(right)
    for row, photo in enumerate(photos.tolist()):
        captions_by_word = [captions_with[word] for word in chosen[photo] if word not in _LINKING]
        right[row, photo_of[sorted(set.intersection(*captions_by_word))]] = True
        wrong[row, photo_of[sorted(set.union(*captions_by_word))]] = False
    return ShortQueries([" ".join(chosen[p]) for p in photos.tolist()], photos, right, wrong)


def _part(words: Sequence[str], random: np.random.Generator) -> list[str]:
    """One to three successive words, without linking words at both ends."""
    if not words:
        return []
    start = int(random.integers(len(words)))
    part = list(words[start : start + int(random.integers(1, _LONGEST + 1))])
    while part and part[0] in _LINKING:
        part.pop(0)
    while part and part[-1] in _LINKING:
        part.pop()
    return part
