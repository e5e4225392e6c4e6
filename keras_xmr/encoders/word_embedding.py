"""Word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from keras_xmr.config.contracts import EncoderContract
from keras_xmr.config.option_types import BelowOne, PositiveInt
from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.encoders.pretrained.word_vectors import WordVectorsError, initial_vectors


class WordEmbedding(Encoder):
    """One learned vector per word, initialised by GloVe vectors if a file is named.

    Args:
        dimension: Width of the vectors.
        vectors: Text file of word vectors, as GloVe comes; null learns them from scratch.
        dropout: Part of the numbers that are dropped in training.
    """

    CONTRACT = EncoderContract(side="text", reads="words", width="dimension")

    def __init__(
        self,
        *,
        dimension: PositiveInt = 300,
        vectors: str | None = None,
        dropout: BelowOne = 0.0,
    ) -> None:
        self.dimension = dimension
        self.vectors = vectors
        self.dropout = dropout

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Word ids (B, L), padded with 0, to vectors (B, L, dimension) and their mask (B, L)."""
        layer = keras.layers.Embedding(
            len(spec.vocabulary),
            self.dimension,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1, seed=spec.seed),
            name="encoder",
        )
        features = layer(inputs)
        if self.vectors is not None and spec.pretrained:
            try:
                vectors = initial_vectors(
                    Path(self.vectors), spec.vocabulary, self.dimension, spec.seed
                )
            except WordVectorsError as error:
                raise EncoderError(f"model.text.encoder.vectors: {error}") from None
            layer.set_weights([vectors])
        if self.dropout:
            features = keras.layers.Dropout(self.dropout, seed=spec.seed, name="dropout")(features)
        return features, keras.ops.not_equal(inputs, 0)
