"""The words of the captions of training: of others, a model has not learned what they look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np


class Vocabulary:
    """The words of the captions of training.

    Args:
        counts: In how many captions each word is.
        captions: How many captions there are.
    """

    _RARE, _COMMON, _MISSING = 3, 0.02, 0.5

    def __init__(self, counts: Mapping[str, int], captions: int) -> None:
        self.counts = dict(counts)
        self.captions = captions

    @classmethod
    def of(cls, captions: Iterable[str]) -> Vocabulary:
        """Counts the words of captions."""
        counts: dict[str, int] = {}
        total = 0
        for caption in captions:
            total += 1
            for word in set(split_words(caption)):
                counts[word] = counts.get(word, 0) + 1
        return cls({w: n for w, n in sorted(counts.items()) if n >= cls._RARE}, total)

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Words and counts, to be saved."""
        words, counts = list(self.counts), list(self.counts.values())
        return {
            "words": np.array(words, np.str_),
            "counts": np.array(counts, np.int64),
            "captions": np.array(self.captions),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Vocabulary:
        """From what `as_arrays` gave."""
        pairs = zip(arrays["words"].tolist(), arrays["counts"].tolist(), strict=True)
        return cls(dict(pairs), int(arrays["captions"]))

    def unfamiliar(self, text: str) -> tuple[str, ...]:
        """The words that training does not know, if they are half of the rarer words or more."""
        words = [w for w in dict.fromkeys(split_words(text)) if not self._is_common(w)]
        missing = tuple(word for word in words if not self._is_known(word))
        return missing if missing and len(missing) >= self._MISSING * len(words) else ()

    def _is_common(self, word: str) -> bool:
        return self.counts.get(word, 0) >= max(self._COMMON * self.captions, self._RARE)

    def _is_known(self, word: str) -> bool:
        return any(form in self.counts for form in (word, f"{word}s", word.removesuffix("s")))


def split_words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())
