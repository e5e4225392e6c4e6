"""Short queries from captions: people search with one to three words, not with captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.index.vocabulary import split_words

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
        wrong: Photos whose captions have none of them, bool (queries, photos).
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
        photo_of: The photo of each, (captions,), from 0 on.
        seed: Of the choice.
    """
    random = np.random.default_rng(seed)
    words = [split_words(caption) for caption in captions]
    photos_with: dict[str, set[int]] = {}
    captions_with: dict[str, set[int]] = {}
    for number, (caption_words, photo) in enumerate(zip(words, photo_of.tolist(), strict=True)):
        for word in caption_words:
            photos_with.setdefault(word, set()).add(photo)
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
        rare_words = [word for word in chosen[photo] if word not in _LINKING]
        captions_with_all = set.intersection(*(captions_with[word] for word in rare_words))
        right[row, photo_of[sorted(captions_with_all)]] = True
        wrong[row, sorted(set.union(*(photos_with[word] for word in rare_words)))] = False
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
