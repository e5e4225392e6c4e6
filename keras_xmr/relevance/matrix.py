"""The relevance of captions to images: of all in tiles, of a batch, as functions of captions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from keras_xmr.judgements.accepted_forms import check_image_ids
from keras_xmr.relevance.caption_words import TOKENIZERS
from keras_xmr.relevance.ngram_weights import WeightedCaptions, weigh
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import RelevanceMeasure, RelevanceTokenizer


FREQUENT = 256
"""Number of most frequent terms that are multiplied as dense matrices.

Frequent terms are nearly all of the products of sparse matrices, and few entries of dense ones.
"""

TILE = 256
"""Number of images per block of the relevance matrix."""


class RelevanceMatrix:
    """The relevance of all captions to all images: float32 (images, captions), row by row.

    The references of an image are averaged before they are multiplied with the captions. The
    length penalty of CIDEr-D allows this: captions of one length penalise a reference equally,
    so they share an average. Either measure costs about one
    product of sparse matrices, and holds little more than the captions and the result.

    Args:
        weighted: The captions.
    """

    def __init__(self, weighted: WeightedCaptions) -> None:
        self.shape = weighted.shape
        self._weighted = weighted
        used = np.bincount(weighted.candidates.indices, minlength=weighted.candidates.shape[1])
        order = np.argsort(-used, kind="stable")
        frequent, rare = order[:FREQUENT], np.sort(order[FREQUENT:])
        references, candidates = weighted.references, weighted.candidates
        self._frequent = references[:, frequent].toarray()
        self._rare = references[:, rare]
        frequent_of, rare_of = self._frequent, self._rare
        if candidates is not references:
            frequent_of, rare_of = candidates[:, frequent].toarray(), candidates[:, rare]
        # Without a penalty all captions share one average.
        self._lengths, self._penalty = np.zeros_like(weighted.lengths), np.ones(1, np.float32)
        if weighted.length_penalty is not None:
            self._lengths, self._penalty = weighted.lengths, weighted.length_penalty
        self._groups = []
        for length in np.unique(self._lengths):
            members = np.flatnonzero(self._lengths == length)
            terms = frequent_of[members].T, rare_of[members].T.tocsr()
            self._groups.append((length, members, *terms))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Returns the relevance of all captions to some images.

        Args:
            start: The first image.
            stop: The image after the last one.

        Returns:
            float32 (stop - start, captions).
        """
        averaging = self._weighted.averaging[start:stop]
        relevance = np.empty((averaging.shape[0], self.shape[1]), np.float32)
        for length, members, frequent, rare in self._groups:
            weights = averaging.copy()
            weights.data *= self._penalty[np.abs(self._lengths[averaging.indices] - length)]
            tile = weights @ self._frequent @ frequent
            tile += ((weights @ self._rare) @ rare).toarray()
            relevance[:, members] = tile
        return relevance

    def tiles(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the first image of each tile, and its rows; with a progress bar if there are
        several.
        """
        if 0 < self.shape[0] <= TILE:  # Such as a batch: a bar each would flood a log.
            yield 0, self.rows(0, self.shape[0])
            return
        from keras_xmr.utils.progress import Progress  # Relevance imports without tqdm.

        with Progress("relevance", total=self.shape[0], unit="image") as bar:
            for start in range(0, self.shape[0], TILE):
                tile = self.rows(start, min(start + TILE, self.shape[0]))
                bar.update(len(tile))
                yield start, tile

    def dense(self) -> np.ndarray:
        """Returns the whole matrix, float32 (images, captions)."""
        relevance = np.empty(self.shape, np.float32)
        for start, tile in self.tiles():
            relevance[start : start + len(tile)] = tile
        return relevance


class BatchRelevance:
    """The relevance of the captions of a batch to its images.

    Holds the n-grams of all captions sparse, and multiplies the n-grams of the batch alone, so a
    call takes about a millisecond for 128 pairs, for any number of captions. Can be called from
    several threads.

    Args:
        weighted: All captions of the split that the batches are made of.
    """

    def __init__(self, weighted: WeightedCaptions) -> None:
        self._weighted = weighted
        # The place of each term in the batch. Entries of other batches are not cleared.
        self._place = np.zeros(weighted.candidates.shape[1], np.int32)
        self._lock = threading.Lock()

    def __call__(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Returns the relevance of some captions to some images.

        Args:
            images: Numbers of the images, int (N,).
            captions: Numbers of the captions, int (M,).

        Returns:
            float32 (N, M).
        """
        weighted = self._weighted
        averaging = weighted.averaging[images]
        references, starts = averaging.indices, averaging.indptr
        rows = weighted.references[references]
        if weighted.length_penalty is None:
            rows.data *= np.repeat(averaging.data, np.diff(rows.indptr))
            return self._products(rows, rows.indptr[starts], captions)
        products = self._products(rows, rows.indptr, captions)
        lengths = weighted.lengths
        differences = np.abs(lengths[references][:, None] - lengths[captions])
        products *= weighted.length_penalty[differences]
        return (
            scipy.sparse.csr_array(
                (averaging.data, np.arange(len(references)), starts),
                shape=(len(starts) - 1, len(references)),
            )
            @ products
        )

    def _products(
        self, rows: scipy.sparse.csr_array, starts: np.ndarray, captions: np.ndarray
    ) -> np.ndarray:
        """Returns the products of weighted terms and captions.

        Args:
            rows: The terms, one row after another.
            starts: The first term of each sum of products, and the end of the last.
            captions: The captions.

        Returns:
            float32 (starts - 1, captions).
        """
        columns = self._weighted.candidates[captions]
        terms = columns.indices
        if not len(terms):
            return np.zeros((len(starts) - 1, len(captions)), np.float32)
        # A term of several captions takes the place of any one of them. So the cost of a product
        # follows the batch, not the vocabulary, and nothing has to be sorted.
        with self._lock:
            self._place[terms] = np.arange(len(terms), dtype=np.int32)
            places = self._place[terms]
            positions = self._place[rows.indices]
        np.minimum(positions, len(terms) - 1, out=positions)
        known = terms[positions] == rows.indices
        kept = np.concatenate([[0], np.cumsum(known, dtype=np.int32)])[starts]
        dense = np.zeros((len(terms), len(captions)), np.float32)
        dense[places, np.repeat(np.arange(len(captions)), np.diff(columns.indptr))] = columns.data
        common = (rows.data[known], positions[known], kept)
        return scipy.sparse.csr_array(common, shape=(len(starts) - 1, len(terms))) @ dense


def relevance_matrix(
    captions: Iterable[str],
    image_of_caption: np.ndarray,
    num_images: int,
    measure: RelevanceMeasure = "cider",
    tokenizer: RelevanceTokenizer = "ptb",
) -> RelevanceMatrix:
    """Returns the relevance of captions to the images that they, and others, were written for.

    Args:
        captions: The captions, as their authors wrote them.
        image_of_caption: The image of each caption, int (captions,).
        num_images: Number of images.
        measure: The measure of relevance.
        tokenizer: The tokenizer that splits captions into words.

    Raises:
        UserError: If the tokenizer cannot be run.
    """
    words = TOKENIZERS[tokenizer](captions)
    return RelevanceMatrix(weigh(words, image_of_caption, num_images, measure))


def cider(captions: Sequence[str], image_ids: ArrayLike) -> np.ndarray:
    """Computes the relevance of captions to images, by CIDEr from 0 to 1 (Vedantam et al. 2015).

    Args:
        captions: The captions, as their authors wrote them.
        image_ids: The row of each caption's image, int (captions,), from 0; every image has one.

    Returns:
        Float32 (images, captions): the mean, over the captions of an image, of the cosine of
        TF-IDF vectors of n-grams of one to four words. See `keras_xmr.relevance.weigh`.

    Raises:
        ArgumentError: If captions are not texts, or `image_ids` does not fit them.
    """
    return _relevance(captions, image_ids, "cider")


def cider_d(captions: Sequence[str], image_ids: ArrayLike) -> np.ndarray:
    """Returns the same by CIDEr-D, from 0 to 10, as `pycocoevalcap` computes it."""
    return _relevance(captions, image_ids, "cider_d")


def tf_idf(captions: Sequence[str], image_ids: ArrayLike) -> np.ndarray:
    """Returns the same by the cosine of TF-IDF vectors of words, from 0 to 1, as DAA is trained
    with.
    """
    return _relevance(captions, image_ids, "tf_idf")


def _relevance(
    captions: Sequence[str], image_ids: ArrayLike, measure: RelevanceMeasure
) -> np.ndarray:
    is_list = isinstance(captions, Iterable) and not isinstance(captions, str)
    captions = list(captions) if is_list else []
    if not is_list or not all(isinstance(text, str) for text in captions):
        raise ArgumentError("captions must be a list of texts")
    if not len(captions):
        raise ArgumentError("captions are empty; give at least one text")
    known = as_array(image_ids, "image_ids")
    is_whole = known.ndim == 1 and known.size and np.issubdtype(known.dtype, np.integer)
    images = int(known.max()) + 1 if is_whole else len(captions)
    rows = check_image_ids(known, images, len(captions))
    return relevance_matrix(captions, rows, images, measure).dense()
