"""Words of the training captions: which words of a query no caption of the training had.

A model ranks all photos for any query, also for words that it never saw with a photo.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator

WORDS = "words.txt"
"""End of the name of the file of an index."""

_FUNCTION_WORDS = """
a about after all also an and any are aren around as at away back be been before behind being below
beneath beside between both but by can could did didn do does doesn doing don down during each every
few find for from had has hasn have haven having he her here hers him his how i if in inside into is
isn it its just let like many me more most much my near next no nor not of off on one only onto or
other our out outside over per photo photos picture pictures image images please she show showing
shows so some such than that the their them then there these they this those through to together too
toward towards under until up upon us very want was wasn we were weren what when where which while
who whom whose why will with within without would you your
"""
_LEFT_OUT = frozenset(_FUNCTION_WORDS.split())
"""English words that say nothing about a photo, or are of the query."""

_APOSTROPHES = re.compile("[’ʼ`´]")
_WHOLE = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Characters of scripts that are written without spaces: each is a word."""

_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("y", "ies"), ("", "s"), ("", "es"))
"""Endings of plurals and singulars: a word is known with another one, too."""


def untrained_words(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Returns the distinct content words of a text that no training caption has.

    Args:
        text: A query.
        known: Words of the training captions, in lower case.
    """
    words: dict[str, str] = {}
    for word in _words(text):
        words.setdefault(word.lower(), word)
    return tuple(
        word
        for lower, word in words.items()
        if lower not in _LEFT_OUT and not _is_known(lower, known)
    )


def _words(text: str) -> Iterator[str]:
    """Yields the words of a text with a letter, without what follows an apostrophe."""
    for spaced in _APOSTROPHES.sub("'", text).split():
        for piece in "".join(c if _is_of_word(c) else " " for c in spaced).split():
            word = piece.strip("'").partition("'")[0]
            if any(map(str.isalpha, word)):
                yield word


def _is_of_word(character: str) -> bool:
    return character == "'" or unicodedata.category(character)[0] in "LMN"


def _is_known(word: str, known: Collection[str]) -> bool:
    if word in known or (_WHOLE.search(word) and all(character in known for character in word)):
        return True
    return any(
        word.endswith(old) and word.removesuffix(old) + new in known
        for old, new in _ENDINGS
        if len(word) > len(old) + 1
    )


def encode_words(words: Iterable[str]) -> bytes:
    """Returns the content of the file of an index."""
    return "".join(f"{word}\n" for word in sorted(set(words))).encode()
