"""N-grams of captions, and weights by which the relevance of two captions is a scalar product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.sparse

from keras_xmr.utils.errors import ArgumentError

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import RelevanceMeasure

MAX_ORDER = 4
"""CIDEr counts n-grams of one to four words."""


@dataclass(frozen=True, eq=False)
class NGrams:
    """The n-grams of some captions.

    Attributes:
        counts: The count of each n-gram in each caption: sparse float32 (captions, n-grams),
            in rows. All n-grams of one word come first, in the order of `words`, then n-grams of
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
    """Returns counts (captions, distinct) of the n-grams of one order, listed caption by
    caption.
    """
    starts = np.concatenate([[0], np.cumsum(per_caption)]).astype(np.int32)
    ones = np.ones(len(grams), np.float32)
    shape = (len(per_caption), distinct)
    counts = scipy.sparse.csr_array((ones, grams.astype(np.int32), starts), shape=shape)
    counts.sum_duplicates()
    return counts


def averaging(image_of_caption: np.ndarray, num_images: int) -> scipy.sparse.csr_array:
    """Returns the matrix that averages captions over the images they describe.

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
    """Returns the number of documents per n-gram.

    Args:
        counts: Counts (captions, n-grams).
        documents: (documents, captions), not 0 where a caption is part of a document.

    Returns:
        int64 (n-grams,). An n-gram counts once per document.
    """
    documents_with = documents @ counts
    return np.bincount(documents_with.indices, minlength=counts.shape[1])


PENALTY_WIDTH = 6.0
"""Deviation, in words, of the Gaussian by which CIDEr-D punishes a difference in length."""


@dataclass(frozen=True, eq=False)
class WeightedCaptions:
    """Captions with a relevance to each other that is a scalar product.

    The relevance of caption c to an image is the mean, over the references r of the image, of
    `length_penalty[|lengths[r] - lengths[c]|] * references[r] @ candidates[c]`. A caption that
    is itself a reference of the image counts among them, as one of equals.

    Attributes:
        references: Weights of each caption as a reference: sparse float32 (captions, terms), in
            rows.
        candidates: Weights of each caption as the one to be judged, likewise. The same
            object as `references` for a symmetric measure.
        averaging: Sparse float32 (images, captions): row i holds 1 / n for the n references of
            image i.
        lengths: Words of each caption, int64 (captions,).
        length_penalty: Factor for each difference in length, float32 (longest caption + 1,);
            None if length does not count.
    """

    references: scipy.sparse.csr_array
    candidates: scipy.sparse.csr_array
    averaging: scipy.sparse.csr_array
    lengths: np.ndarray
    length_penalty: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return self.averaging.shape


def weigh(
    captions: Sequence[Sequence[str]],
    image_of_caption: np.ndarray,
    num_images: int,
    measure: RelevanceMeasure = "cider",
) -> WeightedCaptions:
    """Weighs the n-grams of captions.

    Args:
        captions: The words of each caption, see `keras_xmr.relevance.TOKENIZERS`.
        image_of_caption: The image that each caption is a reference of, int (captions,); -1 for
            a caption that is the reference of none.
        num_images: Number of images.
        measure: The measure of relevance:

            * "cider": CIDEr (Vedantam et al. 2015, Eq. 2 and 3): the mean, over n-grams of one
              to four words, of the cosine of TF-IDF vectors. From 0 to 1. A document is the
              reference set of an image.
            * "cider_d": CIDEr-D as the class `Cider` of `pycocoevalcap` scores it: the counts
              of the candidate are clipped to the reference, a difference in length is
              punished, and the score is multiplied by 10. From 0 to 10, not symmetric.
            * "tf_idf": the cosine of TF-IDF vectors of words of two letters or more, with the
              smoothed IDF of scikit-learn, as in the released training code of Li et al. 2022
              (DAA) for COCO. From 0 to 1. A document is a caption.
    """
    ngrams = count_ngrams(captions, 1 if measure == "tf_idf" else 4)
    documents = averaging(np.asarray(image_of_caption, np.int64), num_images)
    return _MEASURES[measure](ngrams, documents)


def average_references(weighted: WeightedCaptions) -> WeightedCaptions:
    """Averages the references of each image once, for images with many; CIDEr-D stays as it is.

    The length penalty of CIDEr-D depends on the candidate.
    """
    if weighted.length_penalty is not None:
        return weighted
    averaged = scipy.sparse.csr_array(weighted.averaging @ weighted.references)
    alone = scipy.sparse.eye_array(averaged.shape[0], dtype=np.float32, format="csr")
    return WeightedCaptions(averaged, weighted.candidates, alone, weighted.lengths)


def reference_groups(
    references: Literal["image", "class"], labels: Sequence[tuple[int, ...]], images: int
) -> np.ndarray:
    """Numbers the sets of references that images have.

    Args:
        references: Whether an image has the captions that were written for it, or for its
            class.
        labels: The class of each image, a tuple of one number; not read for "image".
        images: Number of images.

    Returns:
        The set of each image, int64 (images,), from 0 on.

    Raises:
        ArgumentError: If an image has no class, or several.
    """
    if references == "image":
        return np.arange(images)
    if len(labels) != images or any(len(label) != 1 for label in labels):
        raise ArgumentError(
            "relevance.references: class needs one class per image, which this data set does not "
            "have; use image"
        )
    return np.unique([label[0] for label in labels], return_inverse=True)[1].astype(np.int64)


def _cider(ngrams: NGrams, documents: scipy.sparse.csr_array) -> WeightedCaptions:
    vectors = _normalised(ngrams, _log_idf(ngrams, documents))
    # The mean over the four orders: half of it on either side.
    vectors.data *= 0.5
    return WeightedCaptions(vectors, vectors, documents, ngrams.lengths)


def _cider_d(ngrams: NGrams, documents: scipy.sparse.csr_array) -> WeightedCaptions:
    counts, references = ngrams.counts, _normalised(ngrams, _log_idf(ngrams, documents))
    candidates = references.copy()
    references.data *= np.float32(10 / 4)
    # The candidate adds its clipped count alone: min(c, r) = sum over k of [c >= k] [r >= k], a
    # scalar product with a column for each n-gram and k.
    candidates.data /= counts.data
    references, candidates = _split_by_count(counts, references, candidates)
    # Both weigh the same terms, which are stored once.
    candidates.indices, candidates.indptr = references.indices, references.indptr
    differences = np.arange(int(ngrams.lengths.max(initial=0)) + 1)
    penalty = np.exp(-(differences**2) / (2 * PENALTY_WIDTH**2)).astype(np.float32)
    return WeightedCaptions(references, candidates, documents, ngrams.lengths, penalty)


def _tf_idf(ngrams: NGrams, documents: scipy.sparse.csr_array) -> WeightedCaptions:
    references = np.diff(documents.tocsc().indptr) > 0
    num = int(references.sum())
    frequencies = np.bincount(ngrams.counts[references].indices, minlength=ngrams.counts.shape[1])
    idf = np.log((1 + num) / (1 + frequencies)) + 1
    idf[np.fromiter((len(word) < 2 for word in ngrams.words), bool, len(idf))] = 0
    vectors = _normalised(ngrams, idf)
    return WeightedCaptions(vectors, vectors, documents, ngrams.lengths)


_MEASURES: dict[str, Callable[[NGrams, scipy.sparse.csr_array], WeightedCaptions]] = {
    "cider": _cider,
    "cider_d": _cider_d,
    "tf_idf": _tf_idf,
}


def _log_idf(ngrams: NGrams, documents: scipy.sparse.csr_array) -> np.ndarray:
    """Computes log(M / max(1, df)), float64 (n-grams,), where M counts the images that have
    references.
    """
    num = int((np.diff(documents.indptr) > 0).sum())
    frequencies = document_frequencies(ngrams.counts, documents)
    return np.log(max(num, 1)) - np.log(np.maximum(frequencies, 1))


def _normalised(ngrams: NGrams, idf: np.ndarray) -> scipy.sparse.csr_array:
    """Computes TF-IDF vectors of norm 1 in each caption and order, or 0 where all of it weighs
    nothing.
    """
    counts, orders = ngrams.counts, ngrams.orders
    num_orders = int(orders.max(initial=1))
    weights = counts.data * idf[counts.indices].astype(np.float32)
    row = np.repeat(np.arange(counts.shape[0], dtype=np.int64), np.diff(counts.indptr))
    row = row * num_orders + (orders[counts.indices] - 1)
    squares = np.bincount(row, np.square(weights), minlength=counts.shape[0] * num_orders)
    inverse = np.zeros(len(squares), np.float32)
    np.divide(1.0, np.sqrt(squares), out=inverse, where=squares > 0, casting="same_kind")
    weights *= inverse[row]
    return scipy.sparse.csr_array((weights, counts.indices, counts.indptr), shape=counts.shape)


def _split_by_count(
    counts: scipy.sparse.csr_array, *weighted: scipy.sparse.csr_array
) -> list[scipy.sparse.csr_array]:
    """Repeats the columns of n-grams that occur k times in some caption, for every such k > 1.

    Counts that no n-gram has need no columns of their own: columns of the next count that some has
    are multiplied by the gap, in the last matrix alone. So a word that is repeated 200,000 times
    costs one level.
    """
    blocks = [[matrix] for matrix in weighted]
    gaps = np.ones(len(weighted), np.float32)
    for last, k in pairwise(np.unique([1, *np.unique(counts.data)])):
        gaps[-1] = k - last
        more = counts.data >= k
        # Numbers of 32 bits, or scipy stacks the levels to matrices with numbers of 64.
        starts = np.concatenate([[0], np.cumsum(more)])[counts.indptr].astype(np.int32)
        columns, index = np.unique(counts.indices[more], return_inverse=True)
        index = index.astype(np.int32)
        shape = (counts.shape[0], len(columns))
        for matrix, gap, levels in zip(weighted, gaps, blocks, strict=True):
            level = (gap * matrix.data[more], index, starts)
            levels.append(scipy.sparse.csr_array(level, shape=shape))
    return [scipy.sparse.hstack(levels, format="csr") for levels in blocks]
