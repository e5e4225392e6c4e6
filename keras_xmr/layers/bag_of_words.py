"""Bag of the most frequent tokens of a caption."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.layers.normalization import l2_normalize
from keras_xmr.layers.part import RecordedLayer


class BagOfWords(RecordedLayer):
    """Token ids int32 (B, L), padded with negative ones, to vectors (B, size) on the unit sphere.

    A vector marks which of the most frequent tokens a caption has, whatever their order and number.
    `adapt` selects these tokens; before, and for captions with none of them, the vector is 0.

    Args:
        size: Number of tokens.
        vocabulary_size: Exclusive upper bound of the ids.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, size: int, vocabulary_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size
        self.vocabulary_size = vocabulary_size

    def build(self, input_shape: tuple[Any, ...]) -> None:
        none = keras.initializers.Constant(-1)
        self.columns = self.add_fixed("columns", (self.vocabulary_size,), none, dtype="int32")

    def adapt(self, ids: np.ndarray) -> None:
        """Selects the tokens in most captions, except tokens in all captions.

        Args:
            ids: The token ids of all captions that train, int32 (M, L), padded as those of `call`.
        """
        captions, _ = np.nonzero(ids >= 0)
        pairs = np.unique(np.stack([captions, ids[ids >= 0]]), axis=1)
        counts = np.bincount(pairs[1], minlength=self.vocabulary_size)
        counts[counts == len(ids)] = 0
        order = np.argsort(-counts, kind="stable")[: self.size]
        order = order[counts[order] > 0]
        columns = np.full(self.vocabulary_size, -1)
        columns[order] = np.arange(len(order))
        self.columns.assign(columns)

    def call(self, ids: Any) -> Any:
        columns = ops.take(self.columns, ops.maximum(ids, 0))
        # ONNX counts negative numbers from the last one: what has no column is behind all.
        columns = ops.where(ops.logical_and(ids >= 0, columns >= 0), columns, self.size)
        return l2_normalize(ops.max(ops.one_hot(columns, self.size, dtype="float32"), axis=1))
