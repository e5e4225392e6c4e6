"""The relevance within a batch, on the fly."""

from __future__ import annotations

import threading

import numpy as np
import scipy.sparse

from keras_xmr.relevance.weights import WeightedCaptions


class BatchRelevance:
    """The relevance of the captions of a batch to its images.

    Holds the n-grams of all captions sparse, and multiplies those of the batch alone, so a call
    takes about a millisecond for 128 pairs, for any number of captions. Can be called from
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
        """The relevance of some captions to some images.

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
        """The products of weighted terms and captions.

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
