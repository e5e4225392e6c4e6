"""The words of the captions of training; a model has not learned others."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

_NAMES = {"CJK": "Chinese"}


class Vocabulary:
    """The words of the captions of training.

    Args:
        counts: Number of captions with each word.
        captions: Number of captions.
    """

    _RARE, _COMMON, _MISSING = 3, 0.02, 0.5

    def __init__(self, counts: Mapping[str, int], captions: int) -> None:
        self.counts = dict(counts)
        self.captions = captions

    @classmethod
    def count(cls, captions: Iterable[str]) -> Vocabulary:
        """Counts the words of captions."""
        counts: dict[str, int] = {}
        total = 0
        for caption in captions:
            total += 1
            for word in set(split_words(caption)):
                counts[word] = counts.get(word, 0) + 1
        return cls({w: n for w, n in sorted(counts.items()) if n >= cls._RARE}, total)

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
        """Words without training captions, if they are at least half of the rarer words."""
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
        return "Training captions have no word of the query: it may be in another language."

    @cached_property
    def _scripts(self) -> set[str]:
        return set(filter(None, map(_script, "".join(self.counts))))

    def _is_common(self, word: str) -> bool:
        return self.counts.get(word, 0) >= max(self._COMMON * self.captions, self._RARE)

    def _is_known(self, word: str) -> bool:
        return any(form in self.counts for form in (word, f"{word}s", word.removesuffix("s")))


def _script(character: str) -> str:
    """The script of a letter, as the first word of its name in Unicode: LATIN; else empty."""
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""


def split_words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())
