"""Relevance as functions of captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_xmr.errors import ArgumentError
from keras_xmr.judgements.relation import check_image_ids
from keras_xmr.relevance.matrix import relevance_matrix

if TYPE_CHECKING:
    from keras_xmr.config.option_types import RelevanceMeasure


def cider(captions: Sequence[str], image_ids: Any) -> np.ndarray:
    """Relevance of each caption to each image, by CIDEr from 0 to 1 (Vedantam et al. 2015).

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


def cider_d(captions: Sequence[str], image_ids: Any) -> np.ndarray:
    """The same by CIDEr-D, from 0 to 10, as `pycocoevalcap` computes it."""
    return _relevance(captions, image_ids, "cider_d")


def tf_idf(captions: Sequence[str], image_ids: Any) -> np.ndarray:
    """The same by the cosine of TF-IDF vectors of words, from 0 to 1, as DAA is trained with."""
    return _relevance(captions, image_ids, "tf_idf")


def _relevance(captions: Sequence[str], image_ids: Any, measure: RelevanceMeasure) -> np.ndarray:
    if isinstance(captions, str) or not all(isinstance(text, str) for text in captions):
        raise ArgumentError("captions must be a list of texts")
    if not len(captions):
        raise ArgumentError("there are no captions")
    known = np.asarray(image_ids)
    images = int(known.max()) + 1 if known.ndim == 1 and known.size else len(captions)
    rows = check_image_ids(image_ids, images, len(captions))
    return relevance_matrix(captions, rows, images, measure).dense()
