"""The n-grams of captions, counted and stored sparse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

MAX_ORDER = 4
"""CIDEr counts n-grams of one to four words."""


@dataclass(frozen=True, eq=False)
class NGrams:
    """The n-grams of some captions.

    Attributes:
        counts: The count of each n-gram in each caption: sparse float32 (captions, n-grams),
            in rows. All n-grams of one word come first, in the order of `words`, then those of
            two, and so on.
        orders: n of each n-gram, int8 (n-grams,).
        lengths: Words of each caption, int64 (captions,).
        words: The distinct words.
    """

    counts: scipy.sparse.csr_array
    orders: np.ndarray
    lengths: np.ndarray
    words: list[str]


def count_ngrams(captions: Sequence[Sequence[str]], max_order: int = MAX_ORDER) -> NGrams:
    """Counts the n-grams of captions.

    N-grams are numbered exactly, by sorting, one order after another, without hashing and without
    strings of n-grams.

    Args:
        captions: The words of each caption.
        max_order: The longest n-grams to count, in words.
    """
    lengths = np.fromiter((len(words) for words in captions), np.int64, len(captions))
    number: dict[str, int] = {}
    word = np.fromiter(
        (number.setdefault(w, len(number)) for words in captions for w in words),
        np.int64,
        int(lengths.sum()),
    )
    ends = np.repeat(np.cumsum(lengths), lengths)
    left = ends - np.arange(len(word))  # words from here to the end of the caption
    gram, distinct = word, len(number)
    blocks = [_rows(gram, lengths, distinct)]
    places = np.arange(len(word))
    for order in range(2, max_order + 1):
        # An n-gram is an (n-1)-gram and one word more.
        kept = left[places] >= order
        places, gram = places[kept], gram[kept]
        keys = gram * max(len(number), 1) + word[places + order - 1]
        unique, gram = np.unique(keys, return_inverse=True)
        distinct = len(unique)
        blocks.append(_rows(gram, np.maximum(lengths - order + 1, 0), distinct))
    orders = np.repeat(np.arange(1, max_order + 1), [block.shape[1] for block in blocks])
    return NGrams(
        scipy.sparse.hstack(blocks, format="csr"), orders.astype(np.int8), lengths, list(number)
    )


def _rows(grams: np.ndarray, per_caption: np.ndarray, distinct: int) -> scipy.sparse.csr_array:
    """Counts (captions, distinct) of the n-grams of one order, listed caption by caption."""
    starts = np.concatenate([[0], np.cumsum(per_caption)]).astype(np.int32)
    ones = np.ones(len(grams), np.float32)
    shape = (len(per_caption), distinct)
    counts = scipy.sparse.csr_array((ones, grams.astype(np.int32), starts), shape=shape)
    counts.sum_duplicates()
    return counts


def averaging(image_of_caption: np.ndarray, num_images: int) -> scipy.sparse.csr_array:
    """The matrix that averages captions over the images they describe.

    Args:
        image_of_caption: The image of each caption, int (captions,); -1 for a caption that is
            the reference of no image.
        num_images: Number of images.

    Returns:
        Sparse float32 (images, captions). A row sums to 1, or holds nothing if the image has no
        reference.
    """
    captions = np.flatnonzero(image_of_caption >= 0)
    images = image_of_caption[captions]
    size = np.bincount(images, minlength=num_images)
    weights = (1.0 / size[images]).astype(np.float32)
    shape = (num_images, len(image_of_caption))
    return scipy.sparse.csr_array((weights, (images, captions)), shape=shape)


def document_frequencies(
    counts: scipy.sparse.csr_array, documents: scipy.sparse.csr_array
) -> np.ndarray:
    """Number of documents per n-gram.

    Args:
        counts: Counts (captions, n-grams).
        documents: (documents, captions), not 0 where a caption is part of a document.

    Returns:
        int64 (n-grams,). An n-gram counts once per document.
    """
    documents_with = documents @ counts
    return np.bincount(documents_with.indices, minlength=counts.shape[1])
