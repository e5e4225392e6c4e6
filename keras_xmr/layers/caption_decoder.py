"""Predicts captions from local features of images, word by word."""

from __future__ import annotations

from typing import Any, Unpack

import keras
from keras import ops

from keras_xmr.layers.gru import PackedGRU
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Shape, Tensor


class CaptionDecoder(RecordedLayer):
    """The text generation of VSRN (Li et al. 2019, section 3.4), as its released code has it.

    A linear layer and a GRU encode the regions. For each word another GRU attends to these states
    by its last state, and reads the previous word and the attended vector; a linear layer maps its
    state to the log-odds of the next word. The dropout of the released code
    is left out.

    Args:
        vocabulary: Number of ids.
        units: Width of both GRUs.
        word_dimension: Width of the word vectors.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, vocabulary: int, units: int, word_dimension: int, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary = vocabulary
        self.units = units
        self.word_dimension = word_dimension
        dtype = self.dtype_policy
        self.region_linear = self.new_dense(units, "region_linear")
        self.region_gru = PackedGRU(
            units, return_sequences=True, return_state=True, dtype=dtype, name="region_gru"
        )
        self.embedding = keras.layers.Embedding(
            vocabulary, word_dimension, dtype=dtype, name="embedding"
        )
        # Both halves of one layer: computed once for the regions, and per word for the state.
        self.attention_regions = self.new_dense(units, "attention_regions", units)
        self.attention_state = self.new_dense(units, "attention_state", units, use_bias=False)
        self.attention_scores = self.new_dense(1, "attention_scores", units, use_bias=False)
        self.word_cell = keras.layers.GRUCell(units, dtype=dtype, name="word_cell")
        self.word_linear = self.new_dense(vocabulary, "word_linear", units)

    def build(self, features_shape: Shape) -> None:
        self.region_linear.build(features_shape)
        self.region_gru.build((None, None, self.units))
        self.embedding.build((None, None))
        self.word_cell.build((None, self.word_dimension + self.units))

    def read(self, features: Tensor) -> tuple[Any, Any, Any]:
        """Encodes images (N, R, F); regions of zeros are padding.

        Returns:
            The states (N, R, H), the last of them (N, H), and the mask, boolean (N, R).
        """
        mask = ops.any(ops.not_equal(features, 0), axis=-1)
        states, last = self.region_gru(self.region_linear(features), mask=mask)
        return states, last, mask

    def call(self, read: tuple[Any, Any, Any], ids: Tensor) -> Tensor:
        """Predicts the word after each of ids (M, L), by images: log-odds (M, L, vocabulary)."""
        states, last, mask = read
        keys = self.attention_regions(states)
        bias = ops.where(mask, 0.0, -1e9)

        def step(state: Any, word: Tensor) -> Tensor:
            hidden = ops.tanh(keys + self.attention_state(state)[:, None])
            weights = ops.softmax(self.attention_scores(hidden)[..., 0] + bias, axis=-1)
            context = ops.einsum("mr,mrh->mh", weights, states)
            return self.word_cell(ops.concatenate([word, context], axis=-1), [state])[0]

        words = ops.transpose(self.embedding(ids), (1, 0, 2))
        after = ops.scan(lambda state, word: 2 * (step(state, word),), last, words)[1]
        return self.word_linear(ops.transpose(after, (1, 0, 2)))
