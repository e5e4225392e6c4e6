"""Batches of pairs in memory, with the relevance of all captions of a batch to its images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_xmr.utils.errors import ArgumentError

Relevance = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The relevance (N, M) of captions to images, of the numbers of both."""


def relevant_pairs(
    x: dict[str, Any],
    image_ids: ArrayLike,
    relevance: ArrayLike | Relevance,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
) -> tf.data.Dataset:
    """Makes batches of N pairs, in another order in each epoch, as `Retriever.fit` takes them.

    Args:
        x: The images and captions of the pairs, under `image` and `caption`.
        image_ids: The numbers of the images, int (N,).
        relevance: How relevant captions are to images, float (images, N), or a function of numbers
            of images and of captions, such as `keras_xmr.relevance.BatchRelevance`.
        batch_size: Pairs of a batch.
        shuffle: Whether the order changes.
        seed: Seed of the order.

    Raises:
        ArgumentError: If the relevance is not of these images and captions.
    """
    ids = np.asarray(image_ids)
    matrix = None if callable(relevance) else np.asarray(relevance, np.float32)
    if matrix is not None and (matrix.ndim != 2 or matrix.shape[1] != len(ids)):
        raise ArgumentError(
            f"relevance is of shape {matrix.shape}; it has a row per image and a column per pair, "
            f"({ids.max() + 1}, {len(ids)}) here, as keras_xmr.relevance.tf_idf(texts, image_ids) "
            "makes it"
        )

    def relevance_of(images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        if matrix is None:
            return np.asarray(cast(Relevance, relevance)(images, captions), np.float32)
        return matrix[np.ix_(images, captions)]

    def batch(rows: tf.Tensor) -> tuple[Any, dict[str, tf.Tensor]]:
        images = tf.gather(ids, rows)
        found = tf.numpy_function(relevance_of, [images, rows], tf.float32)
        y = {"image_id": images, "relevance": tf.ensure_shape(found, [None, None])}
        return keras.tree.map_structure(lambda array: tf.gather(array, rows), arrays), y

    arrays = keras.tree.map_structure(tf.convert_to_tensor, x)
    rows = tf.data.Dataset.range(len(ids))
    if shuffle:
        rows = rows.shuffle(len(ids), seed=seed)
    return rows.batch(batch_size).map(batch).prefetch(1)
