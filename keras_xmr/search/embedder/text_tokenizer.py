"""The base class of tokenizers, and texts as TensorFlow's tokenizers of training see them."""

from __future__ import annotations

import abc
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import regex

SPACE = r"\t\n\f\r "
"""Whitespace in regular expressions of TensorFlow."""


class TextTokenizer(abc.ABC):
    """Converts texts to ids, between a start and an end.

    Args:
        max_tokens: Longer texts are truncated; start and end do not count.
        start: Id of the start, or None.
        end: Id of the end, or None.
        unknown: Id of unknown words, or None.

    Attributes:
        has_one_length: Whether all texts are padded to `max_tokens`, as the tower takes no others.
    """

    has_one_length = False

    def __init__(
        self,
        max_tokens: int,
        start: int | None = None,
        end: int | None = None,
        unknown: int | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.start, self.end, self.unknown = start, end, unknown

    @abc.abstractmethod
    def pieces(self, text: str) -> list[int]:
        """Returns the ids of a whole text, without start and end."""

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and mask int64 (N, L); padding has the id 0 and the mask 0."""
        before = [] if self.start is None else [self.start]
        after = [] if self.end is None else [self.end]
        rows = [[*before, *self.pieces(text)[: self.max_tokens], *after] for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        return ids, mask

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """Returns the distinct words of a text that the tokenizer does not know."""
        if self.unknown is None:
            return ()
        words = dict.fromkeys(split_words(text))
        return tuple(word for word in words if self.unknown in self.pieces(word))


_REWRITES: tuple[tuple[str, str], ...] = (
    ("[’ʼ`´]", "'"),
    (r"[^\p{L}\p{M}\p{N}']+", " "),
    (rf"(^|[{SPACE}])\p{{M}}+", r"\1"),
    (rf"(^|[{SPACE}])'+", r"\1"),
    (rf"'+([{SPACE}]|\Z)", r"\1"),
    (r"(\p{L})n't(?![A-Za-z0-9_])", r"\1 n't"),
    (r"(\p{L})'(s|m|d|ll|re|ve)(?![A-Za-z0-9_])", r"\1 '\2"),
    (r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}])", r" \1 "),
)


@lru_cache
def _rewrites() -> tuple[tuple[Any, str], ...]:
    return tuple((regex.compile(pattern), new) for pattern, new in _REWRITES)


def split_words(text: str) -> list[str]:
    """Splits a text into lower-case words, as `data_pipelines.text.split_words` does."""
    text = lower(without_newer(text))
    for pattern, new in _rewrites():
        text = pattern.sub(new, text)
    return text.split()


NEWER = (
    r"\u0558\u058B-\u058C\u05C8-\u05C9\u088F-\u0897\u0B53-\u0B54\u0C5C\u0CDC\u1ACF-\u1AF0"
    r"\u1B4E-\u1B4F\u1B7F\u1C89-\u1C8A\u208F\u209D-\u209F\u2E60-\u2E63\uA7CB-\uA7CF\uA7D2\uA7D4"
    r"\uA7DA-\uA7F1\uAB6C-\uAB6D\U000105C0-\U000105F3\U000107BB-\U000107BF\U00010940-\U00010959"
    r"\U00010D40-\U00010D85\U00010EC2-\U00010EFC\U00011380-\U000113E2\U000116D0-\U000116E3"
    r"\U00011B0A-\U00011BF9\U00011DB0-\U00011DF1\U00011F5A\U0001246F-\U0001247F"
    r"\U00012550-\U00012686\U00013460-\U000143FA\U00016100-\U00016139\U00016D40-\U00016D79"
    r"\U00016EA0-\U00016ED3\U00016FF2-\U00016FF6\U000187F8-\U000187FF\U00018CD6-\U00018CFF"
    r"\U00018D09-\U000191D2\U0001B123-\U0001B128\U0001B168\U0001CCF0-\U0001CCF9\U0001D127-\U0001D128"
    r"\U0001D250-\U0001D281\U0001D6A6\U0001DF1F-\U0001DF24\U0001DF2B-\U0001DFFF\U0001E5D0-\U0001E6FF"
    r"\U0002B73A-\U0002B73F\U0002B81E\U0002CEA2-\U0002CEAD\U0002EBF0-\U0002EE5D\U000323B0-\U0003FC3F"
)
"""Characters of Unicode 15.1 and later, which are neither letters nor punctuation in training."""

_FIXED = r"\u2C2F\uA7C0\uA7D0\uA7D6\uA7D8\U00010570-\U00010595"
"""Capital letters of Unicode 14, which stay as they are in training."""


@lru_cache
def _class(characters: str) -> Any:
    return regex.compile(f"[{characters}]")


def without_newer(text: str) -> str:
    """Replaces characters that the tokenizers of training do not know by a symbol."""
    return text if text.isascii() else _class(NEWER).sub("\ufffd", text)


def lower(text: str) -> str:
    """Converts a text to lower case, as TensorFlow does."""
    if text.isascii() or not _class(_FIXED).search(text):
        return text.lower()
    pieces = regex.split(f"([{_FIXED}])", text)
    return "".join(piece if number % 2 else piece.lower() for number, piece in enumerate(pieces))


def fold(text: str) -> str:
    """Folds case and compatible characters, as TensorFlow Text does (NFKC_Casefold)."""
    if text.isascii():
        return text.lower()
    ignorable = _class(r"\p{Default_Ignorable_Code_Point}")
    plain = unicodedata.normalize("NFKC", ignorable.sub("", text))
    return str(ignorable.sub("", unicodedata.normalize("NFKC", plain.casefold())))
